//! Hashes and checks passwords, away from the shards: one check costs tens of milliseconds of CPU.

use std::{
    collections::VecDeque,
    fmt, io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread,
};

use argon2::{
    Argon2,
    password_hash::{PasswordHasher, PasswordVerifier},
};

use blake2::{Blake2s256, Digest};

use crate::random;

/// Checked against when there is no such user, so that the time taken tells nobody which names exist. The
/// hash of bytes that nobody has kept; with the parameters of every hash that is made here.
const NOBODY: &str = "$argon2id$v=19$m=19456,t=2,p=1$Y29ob3J0LW5vYm9keS0xMQ$\
                      8nU1Hh0N1o7RkTq4mPyzVw5xJ2sLb9cDfGgKeAaQiRo";

/// How much less than the shards the hashing threads get of a busy machine.
const NICENESS: i32 = 10;

/// What is asked of the pool.
#[derive(Clone)]
pub enum PasswordWork {
    /// Is this the password behind that hash?
    Check {
        /// The password.
        password: String,
        /// The PHC string; `None` when there is no such user: then the answer is no, and takes as long.
        phc: Option<String>,
    },
    /// Make a hash of this password.
    Hash {
        /// The password.
        password: String,
    },
}

/// What the pool answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PasswordAnswer {
    /// Of [`PasswordWork::Check`].
    Checked {
        /// Whether it is the password.
        valid: bool,
    },
    /// Of [`PasswordWork::Hash`].
    Hashed {
        /// The PHC string.
        phc: String,
    },
}

/// More is waiting than the pool takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolFull;

impl fmt::Display for PoolFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("too many passwords wait to be checked")
    }
}

impl std::error::Error for PoolFull {}

impl fmt::Debug for PasswordWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Check { .. } => "Check(…)",
            Self::Hash { .. } => "Hash(…)",
        })
    }
}

type Answer = Box<dyn FnOnce(PasswordAnswer) + Send>;

/// A few threads that take passwords in the order given. Clones share them; they end with the last.
#[derive(Clone, Debug)]
pub struct PasswordPool {
    work: SyncSender<(PasswordWork, Job)>,
}

/// Whom to tell.
struct Job(Answer);

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Job")
    }
}

impl PasswordPool {
    /// Starts `threads` threads, for which `waiting` passwords may wait.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(threads: u16, waiting: usize) -> io::Result<Self> {
        let (work, queue) = sync_channel(waiting);
        let queue = Arc::new(Mutex::new(queue));
        let known = Arc::new(Known::new());
        for number in 0..threads {
            let (queue, known) = (Arc::clone(&queue), Arc::clone(&known));
            thread::Builder::new()
                .name(format!("password-{number}"))
                .spawn(move || serve(&queue, &known))?;
        }
        Ok(Self { work })
    }

    /// Queues `work`; `answer` is called with the result, on the pool's thread: it puts it into a shard's
    /// inbox.
    ///
    /// # Errors
    /// `PoolFull`; `answer` is not called then.
    pub fn submit(
        &self,
        work: PasswordWork,
        answer: impl FnOnce(PasswordAnswer) + Send + 'static,
    ) -> Result<(), PoolFull> {
        let job = Job(Box::new(answer));
        match self.work.try_send((work, job)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => Err(PoolFull),
        }
    }
}

/// Passwords that were found right are remembered, so that a fleet which starts at once does not wait for
/// one slow hash after the other.
const KNOWN_MAX: usize = 256;

/// Pairs of password and hash that belong together, as digests under a key that never leaves the process.
/// A password that is changed has another hash, so what is remembered of the old one matches nothing.
struct Known {
    key: [u8; 32],
    /// The oldest first.
    digests: Mutex<VecDeque<[u8; 32]>>,
}

impl Known {
    fn new() -> Self {
        Self {
            key: random::bytes(),
            digests: Mutex::new(VecDeque::new()),
        }
    }

    /// [`check`], or what it found before. What is wrong is never remembered: guessing stays slow.
    fn check(&self, password: &str, phc: Option<&str>) -> bool {
        let Some(phc) = phc else {
            return check(password, None);
        };
        let digest = self.digest(password, phc);
        if self.lock().contains(&digest) {
            return true;
        }
        let valid = check(password, Some(phc));
        if valid {
            let mut digests = self.lock();
            if digests.len() == KNOWN_MAX {
                digests.pop_front();
            }
            digests.push_back(digest);
        }
        valid
    }

    fn digest(&self, password: &str, phc: &str) -> [u8; 32] {
        let mut hasher = Blake2s256::new();
        hasher.update(self.key);
        hasher.update((phc.len() as u64).to_le_bytes());
        hasher.update(phc);
        hasher.update(password);
        hasher.finalize().into()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<[u8; 32]>> {
        self.digests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hashes a password on the calling thread, into a PHC string.
#[must_use]
pub fn hash(password: &str) -> String {
    let salt: [u8; 16] = random::bytes();
    let hash = Argon2::default().hash_password_with_salt(password.as_bytes(), &salt);
    hash.expect("the default parameters are allowed")
        .to_string()
}

/// Checks a password on the calling thread. Takes as long when there is no hash to check against; a hash
/// that cannot be read is nobody's.
#[must_use]
pub fn check(password: &str, phc: Option<&str>) -> bool {
    let argon2 = Argon2::default();
    let valid = argon2
        .verify_password(password.as_bytes(), phc.unwrap_or(NOBODY))
        .is_ok();
    valid && phc.is_some()
}

fn serve(queue: &Mutex<Receiver<(PasswordWork, Job)>>, known: &Known) {
    // Refused at most where niceness is forbidden; the pool works all the same.
    let _ = rustix::process::nice(NICENESS);
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((work, Job(answer))) = next else {
            return;
        };
        answer(match work {
            PasswordWork::Check { password, phc } => PasswordAnswer::Checked {
                valid: known.check(&password, phc.as_deref()),
            },
            PasswordWork::Hash { password } => PasswordAnswer::Hashed {
                phc: hash(&password),
            },
        });
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc::channel, time::Duration};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn right_password_is_valid_and_everything_else_is_not() {
        let phc = hash("correct horse");
        assert!(phc.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{phc}");
        assert!(check("correct horse", Some(&phc)));
        assert!(!check("correct horsf", Some(&phc)));
        assert!(!check("", Some(&phc)));
        assert!(!check("correct horse", Some("not a hash")));
        assert!(!check("correct horse", None));
        assert_ne!(hash("correct horse"), phc, "salted");
    }

    #[test]
    fn check_against_nobody_does_the_work() {
        use argon2::password_hash::{Error, phc::PasswordHash};
        let nobody = PasswordHash::new(NOBODY).expect("a hash that can be read");
        assert_eq!(nobody.params.to_string(), "m=19456,t=2,p=1");
        let result = Argon2::default().verify_password(b"guess", &nobody);
        assert_eq!(result, Err(Error::PasswordInvalid));
    }

    #[test]
    fn pool_answers_each() {
        let pool = PasswordPool::start(2, 8).unwrap();
        let (sender, answers) = channel();
        let submit = |work| {
            let sender = sender.clone();
            pool.submit(work, move |answer| {
                sender.send(answer).expect("the test waits")
            })
            .unwrap();
        };
        submit(PasswordWork::Hash {
            password: "secret".into(),
        });
        let PasswordAnswer::Hashed { phc } = answers.recv_timeout(PATIENCE).unwrap() else {
            panic!("a hash was asked for");
        };
        for (password, valid) in [("secret", true), ("Secret", false)] {
            submit(PasswordWork::Check {
                password: password.into(),
                phc: Some(phc.clone()),
            });
            assert_eq!(
                answers.recv_timeout(PATIENCE),
                Ok(PasswordAnswer::Checked { valid })
            );
        }
    }

    #[test]
    fn what_was_right_is_remembered_and_nothing_else() {
        let known = Known::new();
        let phc = hash("correct horse");
        assert!(!known.check("correct horsf", Some(&phc)));
        assert!(known.lock().is_empty());
        assert!(known.check("correct horse", Some(&phc)));
        assert!(known.check("correct horse", Some(&phc)));
        assert_eq!(known.lock().len(), 1);
        assert!(!known.check("correct horsf", Some(&phc)));
        assert!(!known.check("correct horse", Some(&hash("another"))));
        assert!(!known.check("correct horse", None));
        assert_ne!(Known::new().digest("a", "b"), known.digest("a", "b"));
        assert_ne!(known.digest("ab", "c"), known.digest("b", "ca"));
    }

    #[test]
    fn pool_refuses_more_than_may_wait() {
        let pool = PasswordPool::start(1, 2).unwrap();
        let (started, is_started) = channel();
        let (go, goes) = channel::<()>();
        let work = || PasswordWork::Check {
            password: "x".into(),
            phc: None,
        };
        pool.submit(work(), move |_| {
            started.send(()).expect("the test waits");
            let _ = goes.recv();
        })
        .unwrap();
        is_started.recv_timeout(PATIENCE).unwrap();
        let (sender, answers) = channel();
        for _ in 0..2 {
            let sender = sender.clone();
            pool.submit(work(), move |_| sender.send(()).expect("the test waits"))
                .unwrap();
        }
        assert_eq!(pool.submit(work(), |_| ()), Err(PoolFull));
        drop(go);
        for _ in 0..2 {
            answers.recv_timeout(PATIENCE).unwrap();
        }
        assert_eq!(pool.submit(work(), |_| ()), Ok(()));
    }

    #[test]
    fn work_is_shown_without_the_password() {
        let work = PasswordWork::Hash {
            password: "hunter2".into(),
        };
        assert!(!format!("{work:?}").contains("hunter2"));
    }
}
