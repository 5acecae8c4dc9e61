// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

/// Hands all its coin on without a call: nothing of the receiver runs, and the receiver cannot refuse.
contract SelfDestructor {
    constructor() payable {}

    receive() external payable {}

    function destroy(address payable to) external payable {
        selfdestruct(to);
    }
}
