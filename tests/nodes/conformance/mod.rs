//! Every source by the same scenarios: the real follower and the real database come to the same states, books
//! and events whatever chain they watch, simulated or real. A scenario is written once, over a [`stage`];
//! each source is a stage, and each scenario on each is a test of its own. Start at [`stage::Stage`] for what
//! can happen, and at [`payments`] for what must follow.

mod bench;
mod bitcoin;
mod evm;
mod evm_real;
mod evm_simulated;
mod nodes;
mod payments;
mod reorgs;
mod replacements;
mod restarts;
mod stage;

const SEEN: &str = "deposit.seen";
const CONFIRMING: &str = "deposit.confirming";
const ORPHANED: &str = "deposit.orphaned";
const REPLACED: &str = "deposit.replaced";
const CREATED: &str = "credit.created";
const REVERSED: &str = "credit.reversed";
const REINSTATED: &str = "credit.reinstated";

/// Each scenario as a test on one stage.
macro_rules! scenarios {
    ($stage:ty: $($kind:ident: $($scenario:ident),*;)*) => {
        $($(
            #[test]
            fn $scenario() {
                super::$kind::$scenario::<$stage>();
            }
        )*)*
    };
}

/// Every scenario on each of these stages.
macro_rules! sources {
    ($($source:ident: $stage:ty;)*) => {
        $(mod $source {
            scenarios! { $stage:
                payments:
                    payment_is_credited_once_at_its_depth,
                    payments_of_one_block_are_credited_each_for_itself,
                    payment_to_nobody_is_nothing,
                    payments_made_while_it_was_down_are_all_credited,
                    two_hundred_blocks_while_it_was_down_are_made_up_for;
                reorgs:
                    reorg_before_the_credit_takes_the_payment_back,
                    reorg_past_the_credit_reverses_it,
                    payment_that_comes_back_is_reinstated,
                    payment_lost_and_found_over_and_over_is_one_credit,
                    payment_in_another_block_keeps_its_credit,
                    payment_in_another_block_is_credited_from_there,
                    each_payment_of_a_reorg_goes_its_own_way,
                    branch_as_good_as_ours_is_taken_after_some_looks,
                    reorg_while_it_was_down_is_made_up_for,
                    reorg_of_all_that_can_be_undone_after_a_restart;
                replacements:
                    replacement_before_a_block_is_the_one_credited,
                    replacement_that_pays_nobody_takes_the_payment_away,
                    replacement_by_a_reorg_before_the_credit,
                    replacement_by_a_reorg_past_the_credit_and_back,
                    replacement_by_a_reorg_that_pays_nobody,
                    replacement_after_a_reorg_that_lost_the_payment,
                    replacement_after_a_reorg_that_pays_nobody,
                    replacement_of_what_a_reorg_lost_is_lost_in_turn;
                nodes:
                    node_that_is_behind_changes_nothing,
                    node_on_a_worse_branch_changes_nothing,
                    restart_beside_a_node_on_a_worse_branch_changes_nothing,
                    branches_as_good_as_each_other_shown_in_turn_change_nothing,
                    better_branch_that_is_given_up_again_is_undone;
                restarts:
                    restart_between_any_two_steps_changes_nothing,
                    crash_in_the_middle_of_any_round_changes_nothing;
            }
        })*
    };
}

sources! {
    bitcoin_simulated: crate::conformance::bitcoin::Simulated;
    bitcoin_real: crate::conformance::bitcoin::Real;
    evm_coin_simulated: crate::conformance::evm_simulated::Simulated<crate::conformance::evm::Coin>;
    evm_coin_real: crate::conformance::evm_real::Real<crate::conformance::evm::Coin>;
    evm_token_simulated: crate::conformance::evm_simulated::Simulated<crate::conformance::evm::Token>;
    evm_token_real: crate::conformance::evm_real::Real<crate::conformance::evm::Token>;
    evm_inner_simulated: crate::conformance::evm_simulated::Simulated<crate::conformance::evm::InnerCoin>;
    evm_inner_real: crate::conformance::evm_real::Real<crate::conformance::evm::InnerCoin>;
    evm_both_simulated:
        crate::conformance::evm_simulated::Simulated<crate::conformance::evm::TokenBesideCoin>;
    evm_both_real: crate::conformance::evm_real::Real<crate::conformance::evm::TokenBesideCoin>;
}
