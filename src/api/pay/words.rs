//! The two parts of the page that change, as HTML: how the invoice stands, and what is to be paid.

use super::qr;
use super::standing::{Standing, Wait};
use super::view::{PaymentView, View};
use crate::api::html::Escaped;
use crate::rules::policy::Requirement;
use std::fmt::Write as _;

/// The title of the page: what a tab shows.
pub(super) fn title(view: &View) -> String {
    let amount = &view.amount;
    match view.standing {
        Standing::Waiting | Standing::Partial => format!("Pay {} {}", view.missing, view.symbol),
        Standing::Seen => format!("{amount}: payment seen"),
        Standing::Paid | Standing::Overpaid => format!("{amount}: paid"),
        Standing::Late => format!("{amount}: paid late"),
        Standing::Expired => format!("{amount}: expired"),
        Standing::Cancelled => format!("{amount}: cancelled"),
    }
}

/// How it stands: a word in large and what it means for the payer.
pub(super) fn state(view: &View) -> String {
    let (mark, headline) = headline(view);
    let mut html = format!(
        "<p class=\"word\"><span class=\"mark\" aria-hidden=\"true\">{mark}</span> {}</p>",
        Escaped(&headline)
    );
    for line in meaning(view) {
        let _ = write!(html, "<p>{}</p>", Escaped(&line));
    }
    if view.is_delayed {
        html.push_str("<p class=\"delay\">The network is out of reach right now: news may come late.</p>");
    }
    html
}

fn headline(view: &View) -> (&'static str, String) {
    match view.standing {
        Standing::Waiting => ("○", "Waiting for payment".to_owned()),
        Standing::Partial => ("◐", format!("{} {} is still missing", view.missing, view.symbol)),
        Standing::Seen => ("◔", "Payment seen".to_owned()),
        Standing::Paid => ("✓", "Paid".to_owned()),
        Standing::Overpaid => ("✓", "Paid, and more than asked for".to_owned()),
        Standing::Late => ("!", "Paid too late".to_owned()),
        Standing::Expired => ("✕", "Expired".to_owned()),
        Standing::Cancelled => ("✕", "Cancelled".to_owned()),
    }
}

fn meaning(view: &View) -> Vec<String> {
    let came = view.came.as_deref();
    let ask = "Ask the merchant what becomes of it.";
    match view.standing {
        Standing::Waiting => vec!["It shows here as soon as your payment is seen.".to_owned()],
        Standing::Partial => {
            let so_far = format!("{} of {} came so far.", came.unwrap_or("0"), view.amount);
            let waits = view.wait.map(|wait| sentence(wait, view.needs));
            let rest = "Send the rest to the same address.".to_owned();
            [Some(so_far), waits, Some(rest)].into_iter().flatten().collect()
        }
        Standing::Seen => {
            let waits = view.wait.map(|wait| sentence(wait, view.needs));
            let done = "There is nothing more for you to do.".to_owned();
            [waits, Some(done)].into_iter().flatten().collect()
        }
        Standing::Paid => vec!["Thank you. You can close this page.".to_owned()],
        Standing::Overpaid => vec![format!("{} more than asked for came. {ask}", view.too_much)],
        Standing::Late => vec![format!("Your payment came after the time was over. {ask}")],
        Standing::Expired => {
            let over = format!("The time was over at {}: do not pay any more.", view.expiry());
            let came = came.map(|came| format!("{came} came. {ask}"));
            [Some(over), came].into_iter().flatten().collect()
        }
        Standing::Cancelled => {
            let over = "The merchant took it back: do not pay any more.".to_owned();
            let came = view.has_payments.then(|| format!("A payment came. {ask}"));
            [Some(over), came].into_iter().flatten().collect()
        }
    }
}

fn sentence(wait: Wait, needs: Option<Requirement>) -> String {
    match wait {
        Wait::Held => "The merchant looks at a payment by hand.".to_owned(),
        Wait::Blocks { missing, of } => {
            format!(
                "Waiting for confirmations: {} of {of}.",
                of.saturating_sub(missing)
            )
        }
        Wait::Final => "Waiting until the network calls its block final.".to_owned(),
        Wait::Block => match needs {
            Some(Requirement::Confirmations(of)) => format!("Waiting for confirmations: 0 of {of}."),
            Some(Requirement::Safe | Requirement::Finalized) | None => {
                "Waiting until it is in a block.".to_owned()
            }
        },
    }
}

/// What is to be paid and where, or what came.
pub(super) fn pay(view: &View) -> String {
    let mut html = String::new();
    if view.standing.is_asking() {
        ask(view, &mut html);
    }
    if !view.payments.is_empty() {
        html.push_str("<h2>Payments</h2><ul class=\"payments\">");
        for payment in &view.payments {
            let _ = write!(html, "<li>{}</li>", listed(payment));
        }
        html.push_str("</ul>");
    }
    html
}

fn ask(view: &View, html: &mut String) {
    if let Some((uri, svg)) = view.uri.as_ref().and_then(|uri| Some((uri, qr::svg(uri)?))) {
        let uri = Escaped(uri);
        let _ = write!(
            html,
            "<a class=\"code\" href=\"{uri}\" tabindex=\"-1\">{svg}</a>\
             <p><a class=\"open\" href=\"{uri}\">Open in a wallet</a></p>"
        );
    }
    html.push_str("<dl>");
    let amount = format!("{} {}", view.missing, view.symbol);
    field(html, "Amount", &amount, Some(&view.missing));
    field(html, "Network", &view.network, None);
    if let Some(contract) = &view.contract {
        field(html, "Token contract", contract, None);
    }
    if let Some(address) = &view.address {
        field(html, "Address", address, Some(address));
    }
    let _ = write!(
        html,
        "<div><dt>Pay before</dt><dd><time>{}</time><span id=\"left\" \
         role=\"timer\"></span></dd></div></dl>",
        view.expiry()
    );
}

/// A field, with a button that copies a text where there is one. The button is shown by the script, without
/// which it can do nothing.
fn field(html: &mut String, name: &str, shown: &str, copied: Option<&str>) {
    let class = if shown.contains(' ') {
        "value"
    } else {
        "value exact"
    };
    let (label, shown) = (Escaped(name), Escaped(shown));
    let _ = write!(
        html,
        "<div><dt>{label}</dt><dd><span class=\"{class}\">{shown}</span>"
    );
    if let Some(copied) = copied {
        let _ = write!(
            html,
            " <button type=\"button\" data-copy=\"{}\" aria-label=\"Copy: {label}\" hidden>Copy</button>",
            Escaped(copied)
        );
    }
    html.push_str("</dd></div>");
}

fn listed(payment: &PaymentView) -> String {
    let standing = match (payment.wait, payment.is_unassigned) {
        (_, true) => "not for this invoice".to_owned(),
        (None, false) => "confirmed".to_owned(),
        (Some(Wait::Held), false) => "looked at by hand".to_owned(),
        (Some(Wait::Blocks { missing, of }), false) => {
            format!("{} of {of} confirmations", of.saturating_sub(missing))
        }
        (Some(Wait::Final), false) => "in a block that is not final yet".to_owned(),
        (Some(Wait::Block), false) => "in no block yet".to_owned(),
    };
    format!(
        "<strong>{}</strong>, {}<br><span class=\"value exact\">{}</span>",
        Escaped(&payment.amount),
        Escaped(&standing),
        Escaped(&payment.txid)
    )
}
