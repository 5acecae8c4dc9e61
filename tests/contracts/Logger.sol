// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

/// Logs whatever it is told to: no topics, dirty addresses, data of odd length.
contract Logger {
    function write(bytes32[] calldata topics, bytes calldata data) external {
        bytes memory copy = data;
        bytes32[4] memory t;
        for (uint256 i = 0; i < topics.length; i++) {
            t[i] = topics[i];
        }
        assembly {
            let from := add(copy, 32)
            let size := mload(copy)
            switch topics.length
            case 0 { log0(from, size) }
            case 1 { log1(from, size, mload(t)) }
            case 2 { log2(from, size, mload(t), mload(add(t, 32))) }
            case 3 { log3(from, size, mload(t), mload(add(t, 32)), mload(add(t, 64))) }
            default { log4(from, size, mload(t), mload(add(t, 32)), mload(add(t, 64)), mload(add(t, 96))) }
        }
    }
}
