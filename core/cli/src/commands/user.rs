//! `cohort user`.

use std::{fmt, path::Path};

use cohort::{Client, ErrorCode, Id, UserDetails};
use serde_json::json;

use super::{done, time_cell};
use crate::{
    arguments::{OutputArguments, UserCommand},
    context::{Context, read_password},
    output::{Cell, Column, Table},
    problem::Problem,
    terminal::ask_password,
};

pub(super) async fn run(context: &Context, command: UserCommand) -> Result<String, Problem> {
    // The own password is needed beside the connection in one case only.
    let own = context.password()?;
    let client = context.connect_with(own.clone()).await?;
    Ok(match command {
        UserCommand::Create {
            name,
            new_password_file,
            output,
        } => {
            let password = new_password(context, new_password_file.as_deref(), &name)?;
            let user = client.create_user(&name, &password).await?;
            table(&[user]).single(output.output)
        }
        UserCommand::List { output } => table(&client.users().await?).list(output.output),
        UserCommand::Delete { user, output } => {
            let subject = Subject::find(&client, user).await?;
            client.delete_user(subject.id()).await?;
            tell(&subject, "deleted", output)
        }
        UserCommand::Password {
            user,
            new_password_file,
            output,
        } => {
            let subject = Subject::find(&client, user).await?;
            let password =
                new_password(context, new_password_file.as_deref(), &subject.to_string())?;
            client
                .change_password(subject.id(), &own, &password)
                .await?;
            tell(&subject, "changed", output)
        }
        UserCommand::Rename { user, name, output } => {
            let id = Subject::find(&client, user).await?.id();
            client.rename_user(id.clone(), &name).await?;
            table(&[client.user(id).await?]).single(output.output)
        }
        UserCommand::Activate { user, output } => set_active(&client, user, true, output).await?,
        UserCommand::Deactivate { user, output } => {
            set_active(&client, user, false, output).await?
        }
    })
}

async fn set_active(
    client: &Client,
    user: Id,
    active: bool,
    output: OutputArguments,
) -> Result<String, Problem> {
    let id = Subject::find(client, user).await?.id();
    client.set_user_active(id.clone(), active).await?;
    Ok(table(&[client.user(id).await?]).single(output.output))
}

/// Whom a request is about.
enum Subject {
    Seen(UserDetails),
    /// Whom the caller may not see. The request is sent nevertheless: its refusal says what is not allowed.
    Unseen(Id),
}

impl Subject {
    async fn find(client: &Client, user: Id) -> Result<Self, Problem> {
        match client.user(user.clone()).await {
            Ok(details) => Ok(Self::Seen(details)),
            Err(error) if error.code() == Some(ErrorCode::Forbidden) => Ok(Self::Unseen(user)),
            Err(error) => Err(error.into()),
        }
    }

    /// An id where there is one: it stays when the name changes.
    fn id(&self) -> Id {
        match self {
            Self::Seen(details) => details.id.into(),
            Self::Unseen(user) => user.clone(),
        }
    }
}

/// As it is asked for.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seen(details) => f.write_str(&details.name),
            Self::Unseen(user) => user.fmt(f),
        }
    }
}

fn tell(subject: &Subject, what: &str, output: OutputArguments) -> String {
    let whose = if what == "changed" {
        "the password of user"
    } else {
        "user"
    };
    let (user, object) = match subject {
        Subject::Seen(UserDetails { id, name, .. }) => (
            format!("{name} (#{id})"),
            json!({ "id": id.0, "name": name }),
        ),
        Subject::Unseen(Id::Name(name)) => (name.clone(), json!({ "name": name })),
        Subject::Unseen(Id::Number(id)) => (format!("#{id}"), json!({ "id": id })),
    };
    let sentence = format!("{whose} {user} is {what}");
    let object = json!({ what: object });
    done(output.output, &sentence, &object)
}

/// The new password of a user: from a file, or asked for twice.
fn new_password(context: &Context, file: Option<&Path>, name: &str) -> Result<String, Problem> {
    if let Some(file) = file {
        if file.as_os_str() == "-" && context.reads_standard_input() {
            return Err(Problem::usage("standard input cannot hold two passwords"));
        }
        return read_password(file);
    }
    let ask = |prompt: &str| {
        ask_password(prompt).map_err(|_| {
            Problem::usage(format!("no new password for user {name:?}"))
                .with_hint("use --new-password-file, or a terminal to be asked on")
        })
    };
    let first = ask(&format!("New password of {name}: "))?;
    if first == ask("Once more: ")? {
        Ok(first)
    } else {
        Err(Problem::usage("the two passwords differ"))
    }
}

fn table(users: &[UserDetails]) -> Table {
    const COLUMNS: &[Column] = &[
        Column("id"),
        Column("name"),
        Column("active"),
        Column("created"),
    ];
    let mut table = Table::new(COLUMNS);
    for user in users {
        table.row(vec![
            Cell::Number(user.id.0),
            Cell::Text(user.name.clone()),
            Cell::Flag(user.active),
            time_cell(user.created),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use cohort::{Timestamp, UserId};

    use super::{OutputArguments, Subject, UserDetails, table, tell};
    use crate::{arguments::Format, golden::assert_golden};

    #[test]
    fn users_are_shown_without_secrets() {
        let user = |id, name: &str, active| UserDetails {
            id: UserId(id),
            name: name.to_string(),
            active,
            created: Timestamp(1_772_366_400_250_000),
        };
        let users = [user(1, "root", true), user(2, "ann", false)];
        assert_golden("users.txt", &table(&users).list(Format::Table));
        assert_golden("users.json", &table(&users).list(Format::Json));
        let output = OutputArguments {
            output: Format::Table,
        };
        let ann = Subject::Seen(users[1].clone());
        assert_golden("user-password.txt", &tell(&ann, "changed", output));
        let output = OutputArguments {
            output: Format::Json,
        };
        assert_golden("user-deleted.json", &tell(&ann, "deleted", output));
    }
}
