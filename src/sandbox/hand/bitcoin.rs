//! Steps on the Bitcoin node.

use super::*;

const DECIMALS: u8 = 8;
const SYMBOL: &str = "BTC";

impl Hand {
    pub(super) fn on_bitcoin(&self, desk: &mut Desk, step: &Step) -> Result<Did, Refused> {
        match step {
            Step::Deposit(deposit) => self.pay_bitcoin(desk, deposit),
            Step::DoubleSpend(rival) => self.double_spend_bitcoin(desk, rival),
            Step::Replace(rival) => self.replace_bitcoin(desk, rival),
            Step::Reorg(reorg) => both::reorg(&self.bitcoin, desk, reorg),
            Step::Evict(of) => both::evict(&self.bitcoin, desk, of),
            Step::Resend(of) => both::resend(&self.bitcoin, desk, of),
            Step::Fail(_) => Err(no_failure()),
            Step::Tags(_) => Err(no_tags()),
            Step::Lag(lag) => both::lag(&self.bitcoin, *lag),
            Step::Mine(Blocks { blocks }) => both::mine(&self.bitcoin, *blocks),
            Step::Node(state) => both::trouble(&self.bitcoin, state),
        }
    }

    fn pay_bitcoin(&self, desk: &mut Desk, deposit: &Deposit) -> Result<Did, Refused> {
        check_name(deposit.name.as_ref())?;
        check_coin(deposit)?;
        let (address, sat) = (payee(&deposit.to), satoshi(&deposit.amount)?);
        let txid = self.bitcoin.pay(&address, sat).map_err(refused)?;
        let moved = desk.call(deposit.name.as_ref(), On::Btc, txid);
        let words = format!("sent {} {SYMBOL} to {address}{moved}", in_coins(sat));
        Ok(Did::new(words).of(txid))
    }

    /// Whom a rival pays, and how much.
    fn rival_pays(&self, first: Txid, rival: &Rival, to: Option<&str>) -> Result<(String, u64), Refused> {
        check_name(rival.name.as_ref())?;
        let Some((address, sat)) = self.bitcoin.payment_of(first) else {
            return Err(refused(SandboxError::Unknown(first.to_string())));
        };
        let address = rival.to.as_deref().or(to).map_or(address, payee);
        let sat = rival.amount.as_ref().map_or(Ok(sat), |amount| satoshi(amount))?;
        Ok((address, sat))
    }

    fn double_spend_bitcoin(&self, desk: &mut Desk, rival: &Rival) -> Result<Did, Refused> {
        let first = desk.find(On::Btc, &rival.tx)?;
        let (address, sat) = self.rival_pays(first, rival, Some(ELSEWHERE))?;
        let other = self.bitcoin.conflict(first, &address, sat).map_err(refused)?;
        let (block, how) = both::bring(&self.bitcoin, first, other)?;
        let moved = desk.call(rival.name.as_ref(), On::Btc, other);
        let words = format!(
            "spent what {} spends, {how}: {} {SYMBOL} to {address}{moved}",
            rival.tx,
            in_coins(sat)
        );
        Ok(Did::new(words).of(other).in_block(block))
    }

    fn replace_bitcoin(&self, desk: &mut Desk, rival: &Rival) -> Result<Did, Refused> {
        let first = desk.find(On::Btc, &rival.tx)?;
        let (address, sat) = self.rival_pays(first, rival, None)?;
        if self.bitcoin.place(first) != Place::Waits {
            return Err(both::does_not_wait(&rival.tx));
        }
        let other = self.bitcoin.replace(first, &address, sat).map_err(refused)?;
        let moved = desk.call(rival.name.as_ref(), On::Btc, other);
        let words = format!(
            "replaced {}: {} {SYMBOL} to {address}, with a higher fee{moved}",
            rival.tx,
            in_coins(sat)
        );
        Ok(Did::new(words).of(other))
    }
}

fn no_failure() -> Refused {
    Refused::new(
        "a Bitcoin transaction cannot fail: it is in a block or it is not",
        "use it on evm; here `double-spend`, `replace` and `evict` keep a payment out",
    )
}

fn no_tags() -> Refused {
    Refused::new("Bitcoin has no tags: depth is all there is", "use it on evm")
}

fn check_coin(deposit: &Deposit) -> Result<(), Refused> {
    match deposit.token.as_ref().filter(|token| *token != SYMBOL) {
        None => Ok(()),
        Some(token) => Err(Refused::new(
            format!("there is no {token} on this chain"),
            "leave the token out, or use it on evm",
        )),
    }
}

/// What is wrong with a step, whatever the chain is like then.
pub(super) fn foresee(step: &Step) -> Result<(), Refused> {
    let to = |to: &Option<String>| to.as_ref().map_or(Ok(()), |to| check_payee(to));
    match step {
        Step::Deposit(deposit) => {
            check_coin(deposit)?;
            check_payee(&deposit.to)?;
            satoshi(&deposit.amount).map(drop)
        }
        Step::DoubleSpend(rival) | Step::Replace(rival) => {
            to(&rival.to)?;
            rival
                .amount
                .as_ref()
                .map_or(Ok(()), |amount| satoshi(amount).map(drop))
        }
        Step::Fail(_) => Err(no_failure()),
        Step::Tags(_) => Err(no_tags()),
        Step::Reorg(_) | Step::Evict(_) | Step::Resend(_) | Step::Lag(_) | Step::Mine(_) | Step::Node(_) => {
            Ok(())
        }
    }
}

fn check_payee(text: &str) -> Result<(), Refused> {
    match is_word(text) || crate::sandbox::script_of(text).is_some() {
        true => Ok(()),
        false => Err(refused(SandboxError::Address(text.to_owned()))),
    }
}

/// The address of a label; anything else is an address itself, or refused as one.
fn payee(text: &str) -> String {
    match is_word(text) {
        true => Sandbox::address(text),
        false => text.to_owned(),
    }
}

fn satoshi(text: &str) -> Result<u64, Refused> {
    let amount = amount(text, DECIMALS, SYMBOL)?;
    let sat = amount.to_units_string(0).parse();
    sat.map_err(|_| refused(SandboxError::Funds))
}

fn in_coins(sat: u64) -> String {
    Amount::from_u64(sat).to_units_string(DECIMALS)
}
