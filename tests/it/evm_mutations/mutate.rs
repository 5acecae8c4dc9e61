//! One change in the JSON text of an answer. None of them is a lie that nothing else in the answers tells
//! apart from the truth, such as another number of the same form.

use serde_json::{Value, json};

use crate::dice::Dice;

/// What was done, for messages and for what it may change.
#[derive(Clone, Debug)]
pub struct Change {
    pub what: String,
    /// The name of the field that was changed, or of the list of which an entry was.
    pub field: String,
    /// Frames were left out or put elsewhere, where nothing counts them: later ones have another number.
    pub moves_frames: bool,
    /// It may make the whole answer unreadable, whatever the field.
    pub is_rough: bool,
}

/// Stands in the text for what no [`Value`] can hold.
const NEST: &str = "@nest@";

/// Where something is: keys and places.
type Path = Vec<String>;

fn paths(value: &Value, at: &Path, all: &mut Vec<Path>) {
    all.push(at.clone());
    let mut below = |step: String, inner: &Value| {
        let mut path = at.clone();
        path.push(step);
        paths(inner, &path, all);
    };
    match value {
        Value::Array(list) => list
            .iter()
            .enumerate()
            .for_each(|(place, inner)| below(place.to_string(), inner)),
        Value::Object(fields) => fields.iter().for_each(|(name, inner)| below(name.clone(), inner)),
        _ => {}
    }
}

fn pointer(path: &[String]) -> String {
    path.iter().map(|step| format!("/{step}")).collect()
}

/// The last name on the way, past places in lists.
fn field(path: &[String]) -> String {
    let is_name = |step: &&String| step.parse::<usize>().is_err();
    path.iter().rev().find(is_name).cloned().unwrap_or_default()
}

pub fn mutate(dice: &mut Dice, method: &str, answer: &Value, hashes: &[String]) -> (Vec<u8>, Change) {
    if dice.once_in(12) {
        return garble(dice, method, answer);
    }
    let mut all = Vec::new();
    paths(answer, &Path::new(), &mut all);
    // That a frame failed is told by this field alone.
    let is_trace = method.contains("race");
    all.retain(|path| !is_trace || field(path) != "error");
    let path = all.swap_remove(dice.roll(all.len()));
    let mut changed = answer.clone();
    let mut change = Change {
        what: String::new(),
        field: field(&path),
        moves_frames: false,
        is_rough: false,
    };
    let is_entry = path.last().is_some_and(|step| step.parse::<usize>().is_ok());
    let what = match dice.roll(4) {
        0 if !path.is_empty() => remove(dice, &mut changed, &path),
        1 => reorder(dice, &mut changed, &path),
        _ => None,
    };
    let is_list =
        what.is_some() && (is_entry || answer.pointer(&pointer(&path)).is_some_and(Value::is_array));
    let what = what.unwrap_or_else(|| {
        let is_hash = change.field.to_lowercase().ends_with("hash");
        let here = changed.pointer_mut(&pointer(&path)).unwrap();
        let (by, what) = other(dice, here, is_hash, hashes);
        change.is_rough = by == json!(NEST) || path.is_empty();
        *here = by;
        what
    });
    change.moves_frames = is_trace
        && (["calls", "traceAddress"].contains(&&*change.field)
            || (method == "trace_block" && is_list && path.len() < 2));
    change.what = format!("{method}{} {what}", pointer(&path));
    change.is_rough |= is_list && path.len() < 2;
    let nested = format!("{}{}", "[".repeat(3_000), "]".repeat(3_000));
    let text = changed.to_string().replace(&format!("\"{NEST}\""), &nested);
    (text.into_bytes(), change)
}

fn errors(text: &[u8]) -> usize {
    text.windows(8).filter(|window| window == b"\"error\":").count()
}

/// The text cut, or bytes in it that no hex has.
fn garble(dice: &mut Dice, method: &str, answer: &Value) -> (Vec<u8>, Change) {
    let mut text = answer.to_string().into_bytes();
    let place = dice.roll(text.len());
    let what = match dice.roll(4) {
        0 => {
            text.truncate(place);
            format!("cut at {place}")
        }
        1 => {
            text = (0..dice.roll(60)).map(|_| dice.roll(256) as u8).collect();
            format!("bytes {text:?}")
        }
        _ => {
            let had = errors(&text);
            let byte = [b'z', b'"', b'{', b'}', b'[', b',', b' ', 0, 0xff, b'\\', b'x'][dice.roll(11)];
            text[place] = byte;
            // That a frame failed is told by this field alone.
            if method.contains("race") && errors(&text) != had {
                text.truncate(place);
            }
            let around = &text[place.saturating_sub(20).min(text.len())..(place + 20).min(text.len())];
            format!("byte {byte} at {place}: {}", String::from_utf8_lossy(around))
        }
    };
    let change = Change {
        what: format!("{method} {what}"),
        field: "garbled".to_owned(),
        moves_frames: method.contains("race"),
        is_rough: true,
    };
    (text, change)
}

fn remove(dice: &mut Dice, answer: &mut Value, path: &[String]) -> Option<String> {
    let (last, above) = path.split_last()?;
    match answer.pointer_mut(&pointer(above))? {
        Value::Object(fields) => fields.remove(last).map(|_| "removed".to_owned()),
        Value::Array(list) => {
            let place: usize = last.parse().ok()?;
            let entry = list[place].clone();
            Some(match dice.roll(3) {
                0 => {
                    list.insert(place, entry);
                    "doubled".to_owned()
                }
                1 if list.len() > 1 => {
                    let over = dice.roll(list.len());
                    list[over] = entry;
                    format!("put over {over}")
                }
                _ => {
                    list.remove(place);
                    "left out".to_owned()
                }
            })
        }
        _ => None,
    }
}

fn reorder(dice: &mut Dice, answer: &mut Value, path: &[String]) -> Option<String> {
    let Value::Array(list) = answer.pointer_mut(&pointer(path))? else {
        return None;
    };
    if list.len() < 2 {
        return None;
    }
    let (one, other) = (dice.roll(list.len()), dice.roll(list.len()));
    if dice.once_in(2) {
        list.swap(one, other);
        return Some(format!("swapped {one} and {other}"));
    }
    list.reverse();
    Some("reversed".to_owned())
}

fn other(dice: &mut Dice, here: &Value, is_hash: bool, hashes: &[String]) -> (Value, String) {
    let text = here.as_str().unwrap_or_default();
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let is_long = digits.len() >= 40;
    let by = match dice.roll(19) {
        0 | 1 => Value::Null,
        2 => json!(true),
        3 => json!([here]),
        4 => json!({"value": here}),
        5 => json!(NEST),
        6 => json!(-1),
        7 => json!("-0x1"),
        8 => json!(format!("0x1{}", "0".repeat(64))),
        9 => json!(u64::from_str_radix(digits, 16).map_or(1, |number| number)),
        10 => json!(digits),
        11 => json!(format!("0X{digits}")),
        12 => json!(format!("0x{}", digits.to_uppercase())),
        13 => json!(format!("{text} ")),
        14 if is_long => json!(format!("{text}00")),
        15 if is_long => json!(text[..text.len() - 2]),
        16 if is_long => json!(text[..text.len() - 1]),
        17 if is_hash && !hashes.is_empty() && digits.len() == 64 => json!(hashes[dice.roll(hashes.len())]),
        18 => json!(1.5),
        _ => json!(["", "0x", "0x2", "1", "0x01", "weird"][dice.roll(6)]),
    };
    // A short number may be another one now, where that is no fault of form.
    let is_number = !is_long && text.starts_with("0x") && digits.len() < 40;
    let is_lie = is_number
        && by
            .as_str()
            .is_some_and(|by| by.starts_with("0x") && by.len() < 20 && by != "0x");
    let is_lie = is_lie && text != "0x1" || text == "0x0" && by == json!("0x01");
    match is_lie {
        true => (Value::Null, "is null".to_owned()),
        false => (
            by.clone(),
            format!("is {}", by.to_string().chars().take(90).collect::<String>()),
        ),
    }
}
