//! Reads Rust source just far enough to list the paths in it: `crate::store::Database`, `serde::Serialize`.

/// A path of at least one segment, as written, with the modules around it.
#[derive(Debug, PartialEq)]
pub struct UsedPath {
    pub line: usize,
    pub segments: Vec<String>,
    /// How many inline `mod name { }` it stands in: `super` first leaves these.
    pub inline_mods: usize,
    /// One of these is called `tests`.
    pub is_test: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    pub line: usize,
    pub text: String,
}

/// Words, `::` and single signs, without comments, literals' contents and lifetimes.
pub fn tokens(source: &str) -> Vec<Token> {
    let chars: Vec<char> = source.chars().collect();
    let (mut found, mut at, mut line) = (Vec::new(), 0, 1);
    while at < chars.len() {
        let end = match chars[at] {
            '/' if chars.get(at + 1) == Some(&'/') => find(&chars, at, &['\n']),
            '/' if chars.get(at + 1) == Some(&'*') => block_comment_end(&chars, at),
            '"' => string_end(&chars, at),
            'r' | 'b' | 'c' if literal_start(&chars, at).is_some() => literal_end(&chars, at),
            '\'' => char_or_lifetime_end(&chars, at),
            c if is_word(c) => {
                let end = at + chars[at..].iter().take_while(|c| is_word(**c)).count();
                found.push(Token {
                    line,
                    text: chars[at..end].iter().collect(),
                });
                end
            }
            ':' if chars.get(at + 1) == Some(&':') => {
                found.push(Token {
                    line,
                    text: "::".to_owned(),
                });
                at + 2
            }
            c if c.is_whitespace() => at + 1,
            c => {
                found.push(Token {
                    line,
                    text: c.to_string(),
                });
                at + 1
            }
        };
        line += chars[at..end.min(chars.len())]
            .iter()
            .filter(|c| **c == '\n')
            .count();
        at = end;
    }
    found
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn find(chars: &[char], from: usize, text: &[char]) -> usize {
    let hit = chars[from..]
        .windows(text.len())
        .position(|window| window == text);
    hit.map_or(chars.len(), |offset| from + offset)
}

fn block_comment_end(chars: &[char], from: usize) -> usize {
    let (mut depth, mut at) = (0, from);
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => {
                (depth, at) = (depth - 1, at + 2);
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    at
}

fn string_end(chars: &[char], quote: usize) -> usize {
    let mut at = quote + 1;
    while at < chars.len() && chars[at] != '"' {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// For `r"`, `r#"`, `b"`, `br#"`, `b'` and the like: where the quote is. `None` for a plain word.
fn literal_start(chars: &[char], at: usize) -> Option<usize> {
    if at > 0 && is_word(chars[at - 1]) {
        return None;
    }
    let prefix = chars[at..]
        .iter()
        .take_while(|c| matches!(c, 'r' | 'b' | 'c'))
        .count();
    let hashes = chars[at + prefix..].iter().take_while(|c| **c == '#').count();
    let quote = at + prefix + hashes;
    (prefix <= 2 && matches!(chars.get(quote), Some('"' | '\''))).then_some(quote)
}

fn literal_end(chars: &[char], at: usize) -> usize {
    let quote = literal_start(chars, at).unwrap_or(at);
    if chars[quote] == '\'' {
        return char_or_lifetime_end(chars, quote);
    }
    if !chars[at..quote].contains(&'r') {
        return string_end(chars, quote);
    }
    let hashes = chars[at..quote].iter().filter(|c| **c == '#').count();
    let closing: Vec<char> = std::iter::once('"')
        .chain(std::iter::repeat_n('#', hashes))
        .collect();
    find(chars, quote + 1, &closing) + closing.len()
}

fn char_or_lifetime_end(chars: &[char], quote: usize) -> usize {
    match (chars.get(quote + 1), chars.get(quote + 2)) {
        (Some('\\'), _) => find(chars, quote + 3, &['\'']) + 1,
        (_, Some('\'')) => quote + 3,
        _ => quote + 1 + chars[quote + 1..].iter().take_while(|c| is_word(**c)).count(),
    }
}

/// The inline modules around a place: name, and the depth of braces outside.
#[derive(Default)]
struct Inline(Vec<(String, usize)>);

impl Inline {
    fn path(&self, line: usize, segments: Vec<String>) -> UsedPath {
        let is_test = self.0.iter().any(|(name, _)| name == "tests");
        UsedPath {
            line,
            segments,
            inline_mods: self.0.len(),
            is_test,
        }
    }
}

/// Every path in the source, those of `use` groups each in full.
pub fn used_paths(source: &str) -> Vec<UsedPath> {
    let tokens = tokens(source);
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let (mut found, mut at, mut depth, mut inline) = (Vec::new(), 0, 0_usize, Inline::default());
    while at < tokens.len() {
        match text(at) {
            "use" => {
                at = use_tree(&tokens, at + 1, &[], &inline, &mut found);
                continue;
            }
            "mod" if text(at + 2) == "{" => inline.0.push((text(at + 1).to_owned(), depth)),
            "{" => depth += 1,
            "}" => {
                depth = depth.saturating_sub(1);
                inline.0.pop_if(|(_, outside)| *outside == depth);
            }
            word if word.starts_with(is_word) && text(at + 1) == "::" => {
                let is_start = at == 0 || !matches!(text(at - 1), "::" | ".");
                let (segments, end) = plain_path(&tokens, at);
                if is_start {
                    found.push(inline.path(tokens[at].line, segments));
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

fn plain_path(tokens: &[Token], mut at: usize) -> (Vec<String>, usize) {
    let mut segments = vec![tokens[at].text.clone()];
    while tokens.get(at + 1).is_some_and(|token| token.text == "::")
        && tokens
            .get(at + 2)
            .is_some_and(|token| token.text.starts_with(is_word))
    {
        segments.push(tokens[at + 2].text.clone());
        at += 2;
    }
    (segments, at + 1)
}

/// Reads one tree of a `use`, up to the `,`, `}` or `;` after it.
fn use_tree(
    tokens: &[Token],
    mut at: usize,
    before: &[String],
    inline: &Inline,
    found: &mut Vec<UsedPath>,
) -> usize {
    let mut segments = before.to_vec();
    while let Some(token) = tokens.get(at) {
        match token.text.as_str() {
            "," | "}" | ";" => break,
            "{" => {
                loop {
                    at = use_tree(tokens, at + 1, &segments, inline, found);
                    if tokens.get(at).is_none_or(|token| token.text != ",") {
                        break;
                    }
                }
                return at + 1;
            }
            "as" => at += 2,
            "::" | "*" => at += 1,
            _ => {
                segments.push(token.text.clone());
                at += 1;
            }
        }
    }
    if segments.len() > before.len() || !before.is_empty() {
        let line = tokens[at.min(tokens.len()) - 1].line;
        found.push(inline.path(line, segments));
    }
    at
}
