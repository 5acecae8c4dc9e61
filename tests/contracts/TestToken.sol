// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

/// An ERC-20 token whose name, decimals and manners a test chooses. Anybody may do anything with it.
contract TestToken {
    event Transfer(address indexed from, address indexed to, uint256 value);
    event Approval(address indexed owner, address indexed spender, uint256 value);
    /// Moves nothing; whatever is logged after it has a higher log index.
    event Note(uint256 indexed number);

    string public symbol;
    string public name;
    uint8 public decimals;
    uint256 public totalSupply;
    mapping(address => uint256) public balanceOf;
    mapping(address => mapping(address => uint256)) public allowance;

    /// What a transfer costs the receiver, in hundredths of a percent, and who gets it.
    uint256 public feeBasisPoints;
    address public feeReceiver;
    /// Whether the log names the whole amount though less arrives.
    bool public isFeeHidden;

    constructor(string memory symbol_, uint8 decimals_) {
        symbol = symbol_;
        name = symbol_;
        decimals = decimals_;
    }

    function mint(address to, uint256 value) external {
        totalSupply += value;
        balanceOf[to] += value;
        emit Transfer(address(0), to, value);
    }

    /// From now on: 0 for no fee. A hidden fee is one that only balances show.
    function setFee(uint256 basisPoints, address receiver, bool isHidden) external {
        feeBasisPoints = basisPoints;
        feeReceiver = receiver;
        isFeeHidden = isHidden;
    }

    function transfer(address to, uint256 value) external returns (bool) {
        move(msg.sender, to, value);
        return true;
    }

    function approve(address spender, uint256 value) external returns (bool) {
        allowance[msg.sender][spender] = value;
        emit Approval(msg.sender, spender, value);
        return true;
    }

    function transferFrom(address from, address to, uint256 value) external returns (bool) {
        allowance[from][msg.sender] -= value;
        move(from, to, value);
        return true;
    }

    /// A batch payout: one transaction, a transfer to each receiver in this order.
    function pay(address[] calldata to, uint256[] calldata values) external {
        for (uint256 i = 0; i < to.length; i++) {
            move(msg.sender, to[i], values[i]);
        }
    }

    /// A transfer behind `notes` logs that are none.
    function transferAfterNotes(uint256 notes, address to, uint256 value) external {
        for (uint256 number = 0; number < notes; number++) {
            emit Note(number);
        }
        move(msg.sender, to, value);
    }

    function move(address from, address to, uint256 value) private {
        uint256 fee = value * feeBasisPoints / 10_000;
        balanceOf[from] -= value;
        balanceOf[to] += value - fee;
        if (fee == 0) {
            emit Transfer(from, to, value);
            return;
        }
        balanceOf[feeReceiver] += fee;
        if (isFeeHidden) {
            emit Transfer(from, to, value);
        } else {
            emit Transfer(from, to, value - fee);
            emit Transfer(from, feeReceiver, fee);
        }
    }
}
