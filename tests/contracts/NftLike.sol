// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

/// Logs a `Transfer` as ERC-721 does: the same first topic as ERC-20, four topics, no data.
contract NftLike {
    event Transfer(address indexed from, address indexed to, uint256 indexed id);

    mapping(uint256 => address) public ownerOf;

    function give(address to, uint256 id) external {
        emit Transfer(ownerOf[id], to, id);
        ownerOf[id] = to;
    }
}
