// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

/// Takes no coin, whatever comes with it.
contract Reverter {
    error Refused();

    receive() external payable {
        revert Refused();
    }

    fallback() external payable {
        revert Refused();
    }
}
