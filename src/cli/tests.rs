//! Every command that a text of ours names is one, with those options.

use super::args::Cli;
use super::typed;
use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};
use std::path::{Path, PathBuf};

/// A usual terminal's.
const EXAMPLE_WIDTH: usize = 80;

/// The texts that operators and merchants read.
fn texts() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = vec![
        root.join("README.md"),
        root.join("CHANGELOG.md"),
        root.join("src/config/default.toml"),
    ];
    let mut folders = vec![root.join("docs"), root.join("systemd")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.push(path),
            }
        }
    }
    found
}

/// What of a line a shell would run as `creditd`, without what comes before or behind it.
fn command_of(line: &str) -> Option<&str> {
    let line = line.trim().trim_start_matches("$ ");
    let at = match line.starts_with("creditd ") {
        true => 0,
        // `sudo creditd ...`, also with `-u creditd` or `NAME=VALUE`; `zcat FILE | creditd ...`
        false => {
            let at = line.find(" creditd ")? + 1;
            let at = line[at..]
                .strip_prefix("creditd creditd ")
                .map_or(at, |_| at + "creditd ".len());
            let before = line[..at].trim_end();
            let last = before.rsplit(' ').next()?;
            let is_prefix =
                ["sudo", "|"].contains(&last) || last.contains('=') || before.ends_with("-u creditd");
            is_prefix.then_some(at)?
        }
    };
    line[at..].split([';', '|', '>']).next()
}

/// The words of a command line as a shell would split them.
fn split(line: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), String::new());
    let (mut is_quoted, mut depth) = (false, 0);
    for letter in line.chars() {
        match letter {
            '\'' | '"' => is_quoted = !is_quoted,
            // `(what` and `what)`: a shell's substitution is one word.
            '(' | ')' => depth += if letter == '(' { 1 } else { -1 },
            // `[--csv]` is an option that may be left out.
            '[' | ']' if !is_quoted => {}
            ' ' if !is_quoted && depth == 0 => words.push(std::mem::take(&mut word)),
            letter => word.push(letter),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

/// What stands for a height or a merchant in a text.
fn fill_in(word: String) -> String {
    match word.as_str() {
        "H" | "N" | "HEIGHT" => "1".to_owned(),
        "SLUG" => "shop".to_owned(),
        _ => word,
    }
}

/// Why a command of a text cannot be run, if so. One in the middle of a sentence may leave out the rest.
fn fault(line: &str, is_whole: bool) -> Option<String> {
    let words = split(line).into_iter().map(fill_in);
    let error = Cli::try_parse_from(words).err()?;
    let is_good = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => true,
        ErrorKind::MissingRequiredArgument | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => !is_whole,
        _ => false,
    };
    (!is_good).then(|| format!("{line}: {error}"))
}

/// The commands of a text: whole ones of its code blocks, and those in the middle of sentences.
fn commands_in(text: &str) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    let mut is_code = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if is_code {
            found.extend(command_of(line).map(|line| (line.to_owned(), true)));
        } else {
            prose.push_str(line.trim().trim_start_matches("# "));
            prose.push(' ');
        }
    }
    let spans = prose.split('`').skip(1).step_by(2);
    let named = spans.filter_map(command_of).map(|line| (line.to_owned(), false));
    found.extend(named);
    found
}

#[test]
fn every_command_in_the_texts_exists_with_those_options() {
    let mut faults = Vec::new();
    let mut count = 0;
    for path in texts() {
        let text = std::fs::read_to_string(&path).unwrap();
        for (line, is_whole) in commands_in(&text) {
            count += 1;
            let name = path.display();
            faults.extend(fault(&line, is_whole).map(|fault| format!("{name}: {fault}")));
        }
    }
    assert!(count > 80, "only {count} commands were found");
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// What the help of a command ends with.
fn closing(command: &clap::Command) -> String {
    let help = command.get_after_help();
    help.map(ToString::to_string).unwrap_or_default()
}

#[test]
fn every_example_in_the_help_can_be_run() {
    let mut faults = Vec::new();
    let mut count = 0;
    let mut commands = vec![Cli::command()];
    while let Some(command) = commands.pop() {
        // A shell joins what a backslash ends.
        let help = closing(&command).replace("\\\n    ", "");
        for line in help.lines().filter(|line| line.starts_with("  ")) {
            // What it does stands behind it.
            let line = line.trim().split("  ").next().unwrap_or_default();
            if let Some(line) = command_of(line) {
                count += 1;
                faults.extend(fault(line, true));
            }
        }
        commands.extend(command.get_subcommands().cloned());
    }
    assert!(count > 20, "only {count} examples were found");
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// What is wrapped by hand is wrapped again on a narrower terminal, and ragged there; a command that is
/// broken cannot be copied.
#[test]
fn help_is_wrapped_by_the_terminal_alone_and_examples_fit_on_a_line() {
    let mut faults = Vec::new();
    let mut commands = vec![typed::command()];
    while let Some(command) = commands.pop() {
        let help = closing(&command);
        let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
        let lines: Vec<&str> = help.lines().collect();
        let broken = lines
            .windows(2)
            .filter(|pair| is_prose(pair[0]) && is_prose(pair[1]));
        faults.extend(broken.map(|pair| format!("{}: broken: {}", command.get_name(), pair[0])));
        let long = lines
            .iter()
            .filter(|line| line.starts_with(' ') && line.chars().count() > EXAMPLE_WIDTH);
        faults.extend(long.map(|line| format!("{}: too long: {line}", command.get_name())));
        commands.extend(command.get_subcommands().cloned());
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn the_finder_of_commands_finds_and_refuses() {
    let text = "Say `creditd flies --high` or\n```sh\nsudo -u creditd creditd tx\n\
                zcat x | creditd watch import - | cat\n```\n";
    let found = commands_in(text);
    let expected = [
        ("creditd tx".to_owned(), true),
        ("creditd watch import - ".to_owned(), true),
        ("creditd flies --high".to_owned(), false),
    ];
    assert_eq!(found, expected);
    assert!(fault("creditd flies --high", false).is_some());
    assert!(fault("creditd tx", true).is_some());
    assert!(fault("creditd tx", false).is_none());
    assert!(fault("creditd tx ID --hurry", false).is_some());
    assert!(fault("creditd rescan --from H --reason 'a b' [--apply]", true).is_none());
}
