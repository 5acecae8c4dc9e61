//! Pages for people: whole documents with everything in them, under a policy that loads nothing else. What
//! comes from anybody is escaped here, and nowhere else.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};
use std::fmt::{self, Write as _};

/// Text as it may stand in an element or a quoted attribute.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|letter| match letter {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            '\'' => f.write_str("&#39;"),
            '\n' | '\t' => f.write_char(' '),
            // Letters that turn the direction of what follows would let one text pass for another.
            letter if crate::telemetry::is_unsafe(letter) => f.write_char('\u{fffd}'),
            letter => f.write_char(letter),
        })
    }
}

/// A kind of page: its style and its script, which are the same for all of the kind.
#[derive(Debug)]
pub(super) struct Kind {
    style: &'static str,
    script: Option<&'static str>,
    policy: HeaderValue,
}

impl Kind {
    /// Style and script are let through by their hashes: nothing that gets into a page by mistake runs.
    pub(super) fn new(style: &'static str, script: Option<&'static str>) -> Kind {
        let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)));
        let mut policy = format!("default-src 'none'; img-src data:; style-src {}", hash(style));
        if let Some(script) = script {
            let _ = write!(policy, "; script-src {}; connect-src 'self'", hash(script));
        }
        policy.push_str("; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
        Kind {
            style,
            script,
            policy: HeaderValue::try_from(policy).unwrap_or(HeaderValue::from_static("default-src 'none'")),
        }
    }

    /// A page of this kind. `head` and `body` are HTML.
    pub(super) fn page(&self, status: StatusCode, title: &str, head: &str, body: &str) -> Response {
        let mut text = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <meta name=\"robots\" content=\"noindex, nofollow\">\n\
             <link rel=\"icon\" href=\"data:,\">\n\
             <title>{}</title>\n<style>{}</style>\n{head}</head>\n{body}",
            Escaped(title),
            self.style
        );
        if let Some(script) = self.script {
            let _ = writeln!(text, "<script>{script}</script>");
        }
        text.push_str("</html>\n");
        let fixed = |name, value| (name, HeaderValue::from_static(value));
        let headers: [(HeaderName, HeaderValue); 5] = [
            fixed(header::CONTENT_TYPE, "text/html; charset=utf-8"),
            (header::CONTENT_SECURITY_POLICY, self.policy.clone()),
            fixed(header::REFERRER_POLICY, "no-referrer"),
            fixed(header::X_FRAME_OPTIONS, "DENY"),
            fixed(HeaderName::from_static("x-robots-tag"), "noindex, nofollow"),
        ];
        (status, headers, text).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_shown_is_markup() {
        let text = "<script>alert('1')</script> & \"a\" \u{202e}\u{0}é";
        let shown = Escaped(text).to_string();
        let expected =
            "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt; &amp; &quot;a&quot; \u{fffd}\u{fffd}é";
        assert_eq!(shown, expected);
    }
}
