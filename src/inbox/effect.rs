//! What an event does, by the config and its body. Pure: whatever cannot be told is said, and nothing
//! guessed.

use crate::config::{Config, CreditRule, InboxEffect, InboxSource};
use crate::rules::Amount;
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
            Ok(Effect::Hint(format!("looked at {alias} {named:?}")))
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
    let address = optional(&rule.address);
    let script = |address: &String| {
        let on = |chain: crate::config::ChainConfig<'_>| {
            let script = chain.script(address).ok()?;
            Some((chain.chain().clone(), script))
        };
        config.chains().filter_map(on).collect()
    };
    Ok(ExternalPayment {
        merchant: rule.merchant.clone(),
        payment: needed(&rule.payment)?,
        asset: ExternalAsset {
            code: rule.asset.clone(),
            decimals: rule.decimals,
        },
        amount,
        reference: optional(&rule.reference).unwrap_or_default(),
        output: optional(&rule.output).and_then(|text| NamedOutput::parse(&text)),
        scripts: address.as_ref().map(script).unwrap_or_default(),
    })
}
