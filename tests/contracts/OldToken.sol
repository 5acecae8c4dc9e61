// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

/// Logs a `Transfer` as tokens older than ERC-20 do: the same first topic, nothing else indexed, 96 bytes of
/// data.
contract OldToken {
    event Transfer(address from, address to, uint256 value);

    mapping(address => uint256) public balanceOf;

    function mint(address to, uint256 value) external {
        balanceOf[to] += value;
        emit Transfer(address(0), to, value);
    }

    function transfer(address to, uint256 value) external returns (bool) {
        balanceOf[msg.sender] -= value;
        balanceOf[to] += value;
        emit Transfer(msg.sender, to, value);
        return true;
    }
}
