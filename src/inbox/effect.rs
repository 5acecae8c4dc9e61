//! What an event does, by the config and its body. Pure: whatever cannot be told is said, and nothing
//! guessed.

use crate::config::{Config, CreditRule, InboxEffect, InboxSource};
use crate::rules::{Amount, ChainId, Script};
use crate::store::{Effect, ExternalAsset, ExternalPayment, NamedOutput};
use crate::webhook::Pointer;
use serde_json::Value;

/// More payments in one event are no event of a shop.
const PAYMENTS_MAX: usize = 64;

/// What the event does, or why nobody can tell.
pub(super) fn of(source: &InboxSource, config: &Config, body: &[u8]) -> Result<Effect, String> {
    let value = serde_json::from_slice::<Value>(body).ok();
    for condition in &source.only {
        let value = value.as_ref().ok_or("the body is not JSON")?;
        let field = condition.field.as_str();
        let Some(said) = condition.field.find(value).and_then(said) else {
            return Ok(Effect::Nothing(format!("{field} is not there")));
        };
        if !condition.is.contains(&said) {
            let said: String = said.chars().take(64).collect();
            return Ok(Effect::Nothing(format!("{field} is {said:?}")));
        }
    }
    match &source.effect {
        InboxEffect::Hint { alias, txid, .. } => {
            let named = txid.as_ref().zip(value.as_ref());
            let named = named.and_then(|(at, value)| at.find_text(value));
            let named: String = named.unwrap_or_default().chars().take(80).collect();
            let of = match named.as_str() {
                "" => String::new(),
                txid => format!(", told of {txid:?}"),
            };
            Ok(Effect::Hint(format!("looked at {alias}{of}")))
        }
        InboxEffect::Forward { merchant } => Ok(Effect::Forward {
            merchant: merchant.clone(),
        }),
        InboxEffect::Credit(rule) => {
            let value = value.as_ref().ok_or("the body is not JSON")?;
            payments(rule, config, value).map(Effect::Credit)
        }
    }
}

/// What a field says, for a condition.
fn said(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(fact) => Some(fact.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn payments(rule: &CreditRule, config: &Config, body: &Value) -> Result<Vec<ExternalPayment>, String> {
    let Some(each) = &rule.each else {
        return Ok(vec![payment(rule, config, body)?]);
    };
    let items = each.find(body).and_then(Value::as_array);
    let items = items.ok_or_else(|| format!("{} is no list", each.as_str()))?;
    if !(1..=PAYMENTS_MAX).contains(&items.len()) {
        return Err(format!(
            "{} has {} payments, not 1 to {PAYMENTS_MAX}",
            each.as_str(),
            items.len()
        ));
    }
    items.iter().map(|item| payment(rule, config, item)).collect()
}

fn payment(rule: &CreditRule, config: &Config, value: &Value) -> Result<ExternalPayment, String> {
    let needed = |at: &Pointer| {
        at.find_text(value)
            .ok_or_else(|| format!("{} is no text and no whole number", at.as_str()))
    };
    let optional = |at: &Option<Pointer>| at.as_ref().and_then(|at| at.find_text(value));
    let amount = needed(&rule.amount)?;
    // What is in the smallest unit has nothing after its point.
    let decimals = if rule.is_whole_units { rule.decimals } else { 0 };
    let amount = Amount::from_units_str(&amount, decimals)
        .map_err(|error| format!("{} is no amount: {error}", rule.amount.as_str()))?;
    let address = place(value, rule.address.as_ref())?;
    let outputs = match place(value, rule.output.as_ref())? {
        Some(text) => NamedOutput::all_in(&text),
        None => Vec::new(),
    };
    if outputs.len() > 1 {
        return Err("it names several outputs: which one was paid?".to_owned());
    }
    Ok(ExternalPayment {
        merchant: rule.merchant.clone(),
        payment: needed(&rule.payment)?,
        asset: ExternalAsset {
            code: rule.asset.clone(),
            decimals: rule.decimals,
        },
        amount,
        reference: optional(&rule.reference).unwrap_or_default(),
        output: outputs.into_iter().next(),
        scripts: address.map(|text| scripts(config, &text)).unwrap_or_default(),
    })
}

/// Where something was paid, if that is said. A place that cannot be read may be one that we watch, where it
/// is credited by what the chain says.
fn place(value: &Value, at: Option<&Pointer>) -> Result<Option<String>, String> {
    let Some((at, found)) = at.and_then(|at| Some((at, at.find(value)?))) else {
        return Ok(None);
    };
    match found {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        Value::Number(number) => Ok(Some(number.to_string())),
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => Err(format!("{} is no text", at.as_str())),
    }
}

/// What the addresses in a text would be on each of our chains, bare or in a URI, an account id or a link.
/// What matters is what they stand for: letter case and a checksum in it say nothing here.
fn scripts(config: &Config, text: &str) -> Vec<(ChainId, Script)> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric());
    let mut found = Vec::new();
    for word in words.filter(|word| !word.is_empty()) {
        let lower = word.to_ascii_lowercase();
        let spellings = [word.to_owned(), format!("0x{lower}"), lower];
        for chain in config.chains() {
            let script = spellings.iter().find_map(|word| chain.script(word).ok());
            found.extend(script.map(|script| (chain.chain().clone(), script)));
        }
    }
    found
}
