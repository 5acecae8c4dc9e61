//! Whom the payers of a world pay, and by which terms that is followed.

use super::Chain;
use crate::script::{Terms, To};
use creditd::follow::{Settings, Start};
use creditd::rules::policy::{Policy, Requirement, Tier};
use creditd::rules::{Amount, Asset, Script};
use creditd::store::{AddressKind, NewAsset, NewChain, Terms as DepositTerms};
use std::time::Duration;

/// A script that is ours from the start.
pub struct Early {
    pub number: u32,
    pub kind: AddressKind,
    pub merchant: &'static str,
    /// What own transfers are.
    pub internal: &'static str,
}

const fn early(number: u32, kind: AddressKind, merchant: &'static str, internal: &'static str) -> Early {
    Early {
        number,
        kind,
        merchant,
        internal,
    }
}

pub const EARLY: [Early; 6] = [
    early(0, AddressKind::Watch, "shop", "ignore"),
    early(1, AddressKind::Watch, "shop", "ignore"),
    early(2, AddressKind::Own, "shop", "ignore"),
    early(3, AddressKind::Watch, "bank", "hold"),
    early(4, AddressKind::Watch, "club", "credit"),
    early(5, AddressKind::Watch, "club", "credit"),
];
/// Scripts that may be added later; nobody spends from them.
pub const LATE: std::ops::Range<u32> = 6..9;
/// Those after the late ones are handed out by the daemon, to whoever asks for an invoice or an address.
pub const HANDED_OUT: u32 = 100;
const HANDED_OUT_MAX: u32 = 8;
/// Nobody spends from these.
pub const NEVER_SPENT: [std::ops::Range<u32>; 2] = [LATE, HANDED_OUT..HANDED_OUT + HANDED_OUT_MAX];
/// Whose the late ones are then.
pub const LATE_MERCHANT: &str = "late";
/// Strangers.
pub const FOREIGN: u32 = 900;
/// Who sends on EVM chains, and whose tokens move: strangers, mostly.
pub const SENDERS: [u32; 8] = [50, 51, 52, 53, 50, 0, 2, 5];
/// The token that is listed from the start, and one that may be listed later.
pub const TUSD: u8 = 0x71;
pub const LATER: u8 = 0x72;

/// The number of the script that is paid.
pub fn number(to: To) -> u32 {
    match to {
        To::Early(which) => EARLY[usize::from(which) % EARLY.len()].number,
        To::Late(which) if u32::from(which) < LATE.len() as u32 => LATE.start + u32::from(which),
        To::Late(which) => HANDED_OUT + (u32::from(which) - LATE.len() as u32) % HANDED_OUT_MAX,
        To::Foreign(which) => FOREIGN + u32::from(which) % 2,
    }
}

/// Script or account `number`.
pub fn script(is_evm: bool, number: u32) -> Script {
    match is_evm {
        true => crate::scripted::account(number),
        false => crate::scripted::script(number),
    }
}

/// What sums below a bound need, and what all others do: the policies that a chain may have.
pub fn tiers(is_evm: bool, policy: u8) -> Vec<(Option<u64>, Requirement)> {
    let depths = |tiers: &[(Option<u64>, u32)]| {
        let tiers = tiers.iter();
        tiers
            .map(|(below, depth)| (*below, Requirement::Confirmations(*depth)))
            .collect()
    };
    match (is_evm, policy % 4) {
        (_, 0) => depths(&[(Some(40), 1), (Some(90), 2), (None, 4)]),
        (_, 1) => depths(&[(None, 2)]),
        (false, 2) => depths(&[(Some(60), 3), (None, 6)]),
        (false, _) => depths(&[(Some(20), 1), (None, 3)]),
        (true, 2) => vec![(None, Requirement::Safe)],
        (true, _) => vec![(None, Requirement::Finalized)],
    }
}

pub fn policy(is_evm: bool, policy: u8) -> Policy {
    let tiers = tiers(is_evm, policy).into_iter();
    let tiers: Vec<Tier> = tiers
        .map(|(below, needs)| Tier {
            below: below.map(Amount::from_u64),
            needs,
        })
        .collect();
    Policy::new(&tiers).unwrap()
}

impl Chain {
    /// Everything that the config would say of this chain, under a policy of [`tiers`].
    pub fn settings(&self, terms: &Terms, number: u8, is_later_listed: bool) -> Settings {
        let id = self.nodes.chain_id();
        let asset = |asset: Asset| NewAsset {
            caip: match &asset {
                Asset::Native => id.evm_coin(60),
                Asset::Token(contract) => id.erc20(contract),
            },
            asset,
            symbol: "COIN".to_owned(),
            decimals: 6,
            from: None,
        };
        let assets = match (self.is_evm, is_later_listed) {
            (false, _) => vec![NewAsset::bitcoin(&id, "BTC")],
            (true, false) => vec![asset(Asset::Native), asset(token(TUSD))],
            (true, true) => vec![asset(Asset::Native), asset(token(TUSD)), asset(token(LATER))],
        };
        let policy = policy(self.is_evm, number);
        let policies = assets.iter().map(|new| (new.asset, policy.clone())).collect();
        Settings {
            chain: NewChain {
                assets,
                id,
                genesis: Some(self.nodes.world().tree.genesis()),
                alias: self.alias().to_owned(),
            },
            start: Start::Height(1),
            terms: DepositTerms {
                policies,
                reorg_window: u64::from(terms.window),
                evict_after_ms: i64::from(terms.evict_s) * 1_000,
            },
            poll: Duration::from_secs(1),
            mempool: Duration::from_secs(2),
            tip_age_max: None,
            fork_patience: self.is_evm.then_some(Duration::from_secs(600)),
        }
    }

    pub fn alias(&self) -> &'static str {
        if self.is_evm { "evm" } else { "btc" }
    }
}

fn token(number: u8) -> Asset {
    Asset::Token(crate::scripted::token(number))
}
