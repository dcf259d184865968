//! Where to connect and as whom: flags before environment before configuration file.

use std::{
    env, fs,
    io::{self, IsTerminal, Read},
    path::{Path, PathBuf},
    time::Duration,
};

use cohort::{Address, Client};
use serde::Deserialize;

use crate::{arguments::ContextArguments, problem::Problem, terminal::ask_password};

const DEFAULT_ADDRESS: &str = "127.0.0.1:5100";
const DEFAULT_USER: &str = "root";

/// The configuration file. Unknown keys are refused.
#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    address: Option<String>,
    user: Option<String>,
    password: Option<String>,
    password_file: Option<PathBuf>,
}

/// What the environment says.
#[derive(Debug, Default)]
pub(crate) struct Environment {
    pub(crate) address: Option<String>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) config: Option<PathBuf>,
    /// Directory of users' configuration files.
    pub(crate) config_home: Option<PathBuf>,
}

impl Environment {
    pub(crate) fn read() -> Result<Self, Problem> {
        let text = |name: &str| match env::var(name) {
            Ok(value) => Ok(Some(value)),
            Err(env::VarError::NotPresent) => Ok(None),
            Err(env::VarError::NotUnicode(_)) => {
                Err(Problem::usage(format!("{name} is not UTF-8")))
            }
        };
        let path = |name: &str| {
            env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let home = path("HOME").map(|home| home.join(".config"));
        Ok(Self {
            address: text("COHORT_ADDRESS")?,
            user: text("COHORT_USER")?,
            password: text("COHORT_PASSWORD")?,
            config: path("COHORT_CONFIG"),
            config_home: path("XDG_CONFIG_HOME").or(home),
        })
    }
}

/// Where to connect and as whom. The password is looked for when it is needed.
#[derive(Debug)]
pub(crate) struct Context {
    address: Address,
    user: String,
    password: Password,
    timeout: Option<Duration>,
}

/// Where the password comes from.
#[derive(PartialEq, Eq)]
enum Password {
    Known(String),
    File(PathBuf),
    Ask,
}

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Known(_) => f.write_str("Known(hidden)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Ask => f.write_str("Ask"),
        }
    }
}

impl Context {
    pub(crate) fn new(flags: &ContextArguments, environment: Environment) -> Result<Self, Problem> {
        let file = read_file(flags, &environment)?;
        let address = match &flags.address {
            Some(address) => {
                let address = parse_address("--address", address)?;
                if address.password().is_some() {
                    let text = "--address: a password on the command line can be seen by everybody on this machine";
                    return Err(Problem::usage(text).with_hint(
                        "use COHORT_PASSWORD, --password-file, or the configuration file",
                    ));
                }
                address
            }
            None => match (&environment.address, &file.address) {
                (Some(address), _) => parse_address("COHORT_ADDRESS", address)?,
                (None, Some(address)) => {
                    parse_address("address in the configuration file", address)?
                }
                (None, None) => parse_address("address", DEFAULT_ADDRESS)?,
            },
        };
        let user = flags
            .user
            .clone()
            .or(environment.user)
            .or_else(|| address.user().map(str::to_string))
            .or(file.user)
            .unwrap_or_else(|| DEFAULT_USER.to_string());
        // The password of an address belongs to its user.
        let of_address = address.password().filter(|_| address.user() == Some(&user));
        let password = if let Some(path) = &flags.password_file {
            Password::File(path.clone())
        } else if let Some(password) = environment.password {
            Password::Known(password)
        } else if let Some(password) = of_address {
            Password::Known(password.to_string())
        } else if let Some(password) = file.password {
            Password::Known(password)
        } else if let Some(path) = file.password_file {
            Password::File(path)
        } else {
            Password::Ask
        };
        Ok(Self {
            address,
            user,
            password,
            timeout: flags.timeout,
        })
    }

    /// The hosts, for messages to people.
    pub(crate) fn hosts(&self) -> String {
        self.address.hosts().join(",")
    }

    /// The hosts, one by one.
    pub(crate) fn host_list(&self) -> &[String] {
        self.address.hosts()
    }

    /// Who logs in.
    pub(crate) fn user(&self) -> &str {
        &self.user
    }

    /// How long an answer may take, where that was said.
    pub(crate) const fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Whether the password is read from standard input, which then cannot hold anything else.
    pub(crate) fn reads_standard_input(&self) -> bool {
        matches!(&self.password, Password::File(path) if path.as_os_str() == "-")
    }

    /// The password of the user who logs in.
    pub(crate) fn password(&self) -> Result<String, Problem> {
        match &self.password {
            Password::Known(password) => Ok(password.clone()),
            Password::File(path) => read_password(path),
            Password::Ask => ask_password(&format!("Password of {}: ", self.user)).map_err(|_| {
                Problem::usage(format!("no password for user {:?}", self.user)).with_hint(
                    "set COHORT_PASSWORD, or use --password-file or a terminal to be asked on",
                )
            }),
        }
    }

    pub(crate) async fn connect(&self) -> Result<Client, Problem> {
        let password = self.password()?;
        self.connect_with(password).await
    }

    pub(crate) async fn connect_with(&self, password: String) -> Result<Client, Problem> {
        let hosts = format!("cohort://{}", self.hosts());
        let mut builder = Client::builder(&hosts)?.user(&self.user, password);
        if let Some(timeout) = self.timeout {
            builder = builder.connect_timeout(timeout).request_timeout(timeout);
        }
        Ok(builder.connect().await?)
    }
}

/// An address with or without the scheme.
fn parse_address(origin: &str, text: &str) -> Result<Address, Problem> {
    let whole = if text.contains("://") {
        text.to_string()
    } else {
        format!("cohort://{text}")
    };
    whole
        .parse()
        .map_err(|error| Problem::usage(format!("{origin}: {error}")))
}

fn read_file(flags: &ContextArguments, environment: &Environment) -> Result<File, Problem> {
    let named = flags.config.as_ref().or(environment.config.as_ref());
    let usual = environment
        .config_home
        .as_ref()
        .map(|home| home.join("cohort/config.toml"));
    let (path, must_exist) = match (named, usual) {
        (Some(path), _) => (path.clone(), true),
        (None, Some(path)) => (path, false),
        (None, None) => return Ok(File::default()),
    };
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if !must_exist && error.kind() == io::ErrorKind::NotFound => {
            return Ok(File::default());
        }
        Err(error) => return Err(Problem::file(&path, &error)),
    };
    parse_file(&path, &text)
}

fn parse_file(path: &Path, text: &str) -> Result<File, Problem> {
    toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| {
            let before = text.get(..span.start).unwrap_or(text);
            before.bytes().filter(|byte| *byte == b'\n').count() + 1
        });
        Problem::usage(format!("{}:{line}: {}", path.display(), error.message()))
    })
}

/// The first line of a file, or of standard input.
pub(crate) fn read_password(path: &Path) -> Result<String, Problem> {
    let mut text = String::new();
    let read = if path.as_os_str() == "-" {
        io::stdin()
            .lock()
            .take(PASSWORD_FILE_SIZE_MAX)
            .read_to_string(&mut text)
    } else {
        fs::File::open(path)
            .and_then(|file| file.take(PASSWORD_FILE_SIZE_MAX).read_to_string(&mut text))
    };
    read.map_err(|error| Problem::file(path, &error))?;
    let size = u64::try_from(text.len()).unwrap_or(u64::MAX);
    match text.lines().next() {
        Some(line) if line.len() == text.len() && size == PASSWORD_FILE_SIZE_MAX => {
            Err(Problem::usage(format!(
                "{}: the first line is too long for a password: 255 bytes are allowed",
                path.display()
            )))
        }
        Some(line) if !line.is_empty() => Ok(line.to_string()),
        Some(_) | None => Err(Problem::usage(format!(
            "{}: the first line holds no password",
            path.display()
        ))),
    }
}

const PASSWORD_FILE_SIZE_MAX: u64 = 4_096;

/// Whether somebody can be asked.
pub(crate) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{
        Context, ContextArguments, Environment, Password, Problem, parse_file, read_password,
    };

    fn text(text: &str) -> Option<String> {
        Some(text.to_string())
    }

    fn context(
        flags: ContextArguments,
        environment: Environment,
        file: &str,
    ) -> Result<Context, Problem> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.toml");
        std::fs::write(&path, file).unwrap();
        Context::new(
            &flags,
            Environment {
                config: Some(path),
                ..environment
            },
        )
    }

    #[test]
    fn flags_come_before_the_environment_and_that_before_the_file() {
        let file = "address = \"f:1\"\nuser = \"file\"\npassword = \"fp\"\n";
        let environment = || Environment {
            address: text("e:2"),
            user: text("env"),
            password: text("ep"),
            ..Environment::default()
        };
        let flags = || ContextArguments {
            address: text("a:3,b"),
            user: text("flag"),
            password_file: Some(PathBuf::from("pw")),
            ..ContextArguments::default()
        };
        let cases = [
            (
                flags(),
                environment(),
                file,
                "a:3,b:5100",
                "flag",
                Password::File(PathBuf::from("pw")),
            ),
            (
                ContextArguments::default(),
                environment(),
                file,
                "e:2",
                "env",
                Password::Known("ep".into()),
            ),
            (
                ContextArguments::default(),
                Environment::default(),
                file,
                "f:1",
                "file",
                Password::Known("fp".into()),
            ),
            (
                ContextArguments::default(),
                Environment::default(),
                "",
                "127.0.0.1:5100",
                "root",
                Password::Ask,
            ),
        ];
        for (flags, environment, file, hosts, user, password) in cases {
            let context = context(flags, environment, file).unwrap();
            assert_eq!(
                (context.hosts().as_str(), context.user.as_str()),
                (hosts, user)
            );
            assert_eq!(context.password, password);
        }
    }

    #[test]
    fn an_address_may_bring_user_and_password_but_not_on_the_command_line() {
        let whole = || text("cohort://ann:p%40@h");
        let environment = || Environment {
            address: whole(),
            ..Environment::default()
        };
        let ours = context(ContextArguments::default(), environment(), "").unwrap();
        assert_eq!(
            (ours.user.as_str(), &ours.password),
            ("ann", &Password::Known("p@".into()))
        );
        // The password of another user is of no use.
        let flags = ContextArguments {
            user: text("bob"),
            ..ContextArguments::default()
        };
        assert_eq!(
            context(flags, environment(), "").unwrap().password,
            Password::Ask
        );

        let flags = ContextArguments {
            address: whole(),
            ..ContextArguments::default()
        };
        let problem = context(flags, Environment::default(), "")
            .unwrap_err()
            .to_string();
        assert!(
            problem.contains("can be seen") && !problem.contains("p%40"),
            "{problem}"
        );
    }

    #[test]
    fn mistakes_in_the_file_are_named_with_their_line() {
        let path = Path::new("/c.toml");
        let message = |text: &str| parse_file(path, text).unwrap_err().to_string();
        let unknown = message("user = \"a\"\npasword = \"x\"\n");
        assert!(
            unknown.starts_with("cohort: /c.toml:2: unknown field `pasword`"),
            "{unknown}"
        );
        let wrong = message("\n\nuser = 7\n");
        assert!(
            wrong.starts_with("cohort: /c.toml:3: invalid type: integer `7`"),
            "{wrong}"
        );
        assert!(message("user = \"a\"\nuser = \"b\"\n").contains("/c.toml:2: duplicate key"));
        let problem = context(
            ContextArguments::default(),
            Environment::default(),
            "address = \"h:x\"",
        );
        assert!(
            problem
                .unwrap_err()
                .to_string()
                .contains("configuration file: \"x\" is not a port")
        );
    }

    #[test]
    fn a_named_file_must_exist_and_the_usual_one_need_not() {
        let nowhere = tempfile::tempdir().unwrap();
        let missing = nowhere.path().join("none.toml");
        let environment = Environment {
            config: Some(missing),
            ..Environment::default()
        };
        assert!(Context::new(&ContextArguments::default(), environment).is_err());
        let config_home = Some(nowhere.path().to_path_buf());
        let environment = Environment {
            config_home,
            ..Environment::default()
        };
        Context::new(&ContextArguments::default(), environment).unwrap();
    }

    #[test]
    fn a_password_is_the_first_line_of_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pw");
        std::fs::write(&path, "secret word\nmore\n").unwrap();
        assert_eq!(read_password(&path).unwrap(), "secret word");
        std::fs::write(&path, "x".repeat(5_000)).unwrap();
        let problem = read_password(&path).unwrap_err().to_string();
        assert!(problem.contains("255 bytes are allowed"), "{problem}");
        std::fs::write(&path, "\n").unwrap();
        assert!(read_password(&path).is_err());
        assert!(read_password(Path::new("/nowhere/pw")).is_err());
    }
}
