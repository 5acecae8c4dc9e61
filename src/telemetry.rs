//! Logging and the end of a panicking process. Log lines go to stderr, so that stdout belongs to what a
//! command answers.

use crate::config::{LogConfig, LogFormat};
use std::fmt;
use std::io::IsTerminal as _;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Starts logging. A second call changes nothing: the first one holds for the life of the process.
pub fn start_logging(config: LogConfig) {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter(config.level))
        .with_writer(std::io::stderr)
        // Its word about a line that cannot be written goes to stderr too, and panics there: a full disk
        // under a log file would end the daemon.
        .log_internal_errors(false)
        .with_target(false);
    let started = match config.format {
        LogFormat::Json => builder
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .try_init(),
        LogFormat::Text if is_journald() => {
            let line = Format::default().with_target(false).without_time();
            builder
                .with_ansi(false)
                .event_format(Journald { line })
                .try_init()
        }
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
    };
    drop(started);
}

/// The level is about our own lines: an HTTP library tells of each connection several times a second.
fn filter(level: Level) -> EnvFilter {
    let others = level.min(Level::WARN);
    EnvFilter::new(format!("{others},creditd={level}"))
}

/// An error and everything beneath it in one line, for people: what nodes, files and arguments say in it
/// is made harmless by [`printable`].
pub fn error_line(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    printable(&text)
}

/// `1 line`, `2 lines`.
pub fn counted(count: u64, noun: &str) -> String {
    format!("{count} {}", plural(count, noun))
}

/// 1204 as `1,204`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut words = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            words.push(',');
        }
        words.push(digit);
    }
    words
}

/// A noun behind a number: `line`, `lines`, `passes`, `properties`.
pub fn plural(count: u64, noun: &str) -> String {
    let stem = noun
        .strip_suffix('y')
        .filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u']));
    match (count, stem) {
        (1, _) => noun.to_owned(),
        (_, Some(stem)) => format!("{stem}ies"),
        (_, None) if noun.ends_with('s') => format!("{noun}es"),
        (_, None) => format!("{noun}s"),
    }
}

/// The longest word of a message: longer than any address, hash or id, and than most paths.
const WORD_CHARS_MAX: usize = 200;

/// The longest line of a message.
const MESSAGE_CHARS_MAX: usize = 1_000;

/// True for letters that could move a terminal's cursor, forge a line of a log, or turn around what is
/// written beside them.
pub fn is_unsafe(letter: char) -> bool {
    let turns = ['\u{61c}', '\u{200e}', '\u{200f}'];
    let is_turning =
        turns.contains(&letter) || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    letter.is_control() || is_turning || matches!(letter, '\u{2028}' | '\u{2029}')
}

/// A text with unsafe letters written out, as in `\u{1b}[2J`.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match is_unsafe(letter) {
            true => safe.extend(letter.escape_default()),
            false => safe.push(letter),
        }
    }
    safe
}

/// One line of a message for a terminal or a log, whoever wrote the words in it: unsafe letters are written
/// out, and of endless words and lines the middle is left out.
pub fn printable(text: &str) -> String {
    let words: Vec<String> = text.split(' ').map(|word| cut(word, WORD_CHARS_MAX)).collect();
    escaped(&cut(&words.join(" "), MESSAGE_CHARS_MAX))
}

/// Leaves out the middle: messages end with what to do.
fn cut(text: &str, chars_max: usize) -> String {
    let count = text.chars().count();
    if count <= chars_max {
        return text.to_owned();
    }
    let tail_chars = chars_max / 4;
    let head = text.chars().take(chars_max - tail_chars);
    let tail = text.chars().skip(count - tail_chars);
    head.chain("...".chars()).chain(tail).collect()
}

/// systemd sets this for services whose stderr it reads itself.
fn is_journald() -> bool {
    std::env::var_os("JOURNAL_STREAM").is_some()
}

/// Lines for journald: it stamps the time itself, and takes the priority from a `<3>` in front
/// (sd-daemon(3)).
struct Journald {
    line: Format<Full, ()>,
}

impl<S, N> FormatEvent<S, N> for Journald
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let priority = match *event.metadata().level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            Level::DEBUG | Level::TRACE => 7,
        };
        write!(writer, "<{priority}>")?;
        self.line.format_event(context, writer, event)
    }
}

/// Makes a panic in any thread end the process, in every profile: what is half done is rolled back at the
/// next start, whereas a daemon that lost one of its tasks would look alive. Prints where it happened first.
pub fn install_panic_hook() {
    std::panic::set_hook(Box::new(|panic| {
        let trace = std::backtrace::Backtrace::capture();
        eprintln!("creditd: this is a bug in creditd: {panic}\n{trace}");
        std::process::abort();
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_are_counted_in_words() {
        for (count, noun, words) in [
            (0, "line", "0 lines"),
            (1, "line", "1 line"),
            (2, "pass", "2 passes"),
            (1, "property", "1 property"),
            (2, "property", "2 properties"),
            (2, "delay", "2 delays"),
        ] {
            assert_eq!(counted(count, noun), words);
        }
    }

    #[test]
    fn messages_are_safe_and_short_whoever_wrote_them() {
        let cases = [
            ("height 5 is above", "height 5 is above"),
            ("b\u{fc}cher \u{4e2d}", "b\u{fc}cher \u{4e2d}"),
            ("\u{1b}[2J\r\n<3>forged", "\\u{1b}[2J\\r\\n<3>forged"),
            ("\u{9b}31m\u{202e}txt", "\\u{9b}31m\\u{202e}txt"),
        ];
        for (text, expected) in cases {
            assert_eq!(printable(text), expected);
        }
        let word = printable(&format!("no {}: see", "x".repeat(5_000)));
        assert!(word.chars().count() < 220 && word.ends_with(": see"), "{word}");
        let line = printable(&format!("no {}: see", "x ".repeat(5_000)));
        assert!(line.chars().count() <= 1_003 && line.ends_with(": see"), "{line}");
    }
}
