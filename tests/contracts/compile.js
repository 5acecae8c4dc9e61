// Compiles every .sol file here and writes NAME.json beside it: see README.md.

const crypto = require("crypto");
const fs = require("fs");
const path = require("path");
const solc = require("solc");

const EVM_VERSION = "paris";
const names = fs.readdirSync(__dirname).filter((name) => name.endsWith(".sol")).sort();
const input = {
  language: "Solidity",
  sources: Object.fromEntries(
    names.map((name) => [name, { content: fs.readFileSync(path.join(__dirname, name), "utf8") }]),
  ),
  settings: {
    evmVersion: EVM_VERSION,
    optimizer: { enabled: true, runs: 200 },
    // The same sources give the same bytes, wherever they lie.
    metadata: { appendCBOR: false, bytecodeHash: "none" },
    outputSelection: {
      "*": { "*": ["evm.bytecode.object", "evm.deployedBytecode.object", "evm.methodIdentifiers"] },
    },
  },
};

const output = JSON.parse(solc.compile(JSON.stringify(input)));
for (const note of output.errors ?? []) {
  process.stderr.write(note.formattedMessage);
}
if ((output.errors ?? []).some((note) => note.severity === "error")) {
  process.exitCode = 1;
} else {
  for (const name of names) {
    const contract = path.basename(name, ".sol");
    const { evm } = output.contracts[name][contract];
    const compiled = {
      source_sha256: crypto.createHash("sha256").update(input.sources[name].content).digest("hex"),
      compiler: `solc ${solc.version()}, optimizer 200 runs, EVM version ${EVM_VERSION}`,
      // What a creation sends, before the constructor's arguments.
      bytecode: `0x${evm.bytecode.object}`,
      // What lies at the contract's address afterwards.
      deployed: `0x${evm.deployedBytecode.object}`,
      methods: evm.methodIdentifiers,
    };
    fs.writeFileSync(path.join(__dirname, `${contract}.json`), `${JSON.stringify(compiled, null, 2)}\n`);
  }
}
