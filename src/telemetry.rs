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

/// An error and everything beneath it in one line, for people.
pub fn error_line(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
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
