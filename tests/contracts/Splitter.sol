// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

/// Forwards the native coin that it receives by inner calls, which no transaction and no log shows.
/// What is not forwarded goes back to the sender by one more inner call.
contract Splitter {
    error Undone();

    /// A creation may bring coin along; it stays here.
    constructor() payable {}

    /// Plain coin stays here too.
    receive() external payable {}

    /// One inner call to each receiver, in this order.
    function split(address payable[] calldata to, uint256[] calldata values) external payable {
        giveBack(spread(to, values, msg.value));
    }

    /// Each receiver one call deeper than the one before.
    function nest(address payable[] calldata to, uint256[] calldata values) external payable {
        give(to[0], values[0]);
        uint256 left = msg.value - values[0];
        if (to.length > 1) {
            this.nest{value: left}(to[1:], values[1:]);
        } else if (left > 0) {
            give(payable(tx.origin), left);
        }
    }

    /// Like `split`, but before it `lost` is paid in a branch that reverts, and the revert is caught: nothing
    /// of that branch has happened, the rest has.
    function splitAroundRevert(
        address payable lost,
        uint256 lostValue,
        address payable[] calldata to,
        uint256[] calldata values
    ) external payable {
        bool isUndone = false;
        try this.giveThenRevert{value: lostValue}(lost) {}
        catch {
            isUndone = true;
        }
        require(isUndone, "the branch must revert");
        giveBack(spread(to, values, msg.value));
    }

    /// Only for `splitAroundRevert`.
    function giveThenRevert(address payable to) external payable {
        give(to, msg.value);
        revert Undone();
    }

    /// Like `split`, from inside a delegate call: its frame repeats the value though nothing moves with it.
    function splitByDelegate(address payable[] calldata to, uint256[] calldata values) external payable {
        (bool isDone,) = address(this).delegatecall(abi.encodeCall(this.split, (to, values)));
        require(isDone, "the delegate call must not fail");
    }

    function spread(address payable[] calldata to, uint256[] calldata values, uint256 coin)
        private
        returns (uint256 left)
    {
        left = coin;
        for (uint256 i = 0; i < to.length; i++) {
            give(to[i], values[i]);
            left -= values[i];
        }
    }

    function giveBack(uint256 left) private {
        if (left > 0) {
            give(payable(msg.sender), left);
        }
    }

    function give(address payable to, uint256 value) private {
        (bool isDone,) = to.call{value: value}("");
        require(isDone, "the receiver refused");
    }
}
