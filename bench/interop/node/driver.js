// Drives node-redlock from another process, one JSON object per line:
//
//	in   {"id": 1, "op": "acquire", "key": "k", "ttl": 1000, "wait": true}
//	in   {"id": 2, "op": "extend", "lock": 1, "ttl": 1000}
//	in   {"id": 3, "op": "release", "lock": 1}
//	out  {"id": 1} or {"id": 1, "error": "LockError", "message": "…", "faults": ["…"]}
//
// A lock goes by the id of the request that acquired it. Replies come in any order. The faults are what servers
// answered besides "someone has it". The end of the input ends the program.
//
//	node driver.js 4|5 host:port …
'use strict';

const readline = require('readline');
const Redis = require('ioredis');

const [version, ...addresses] = process.argv.slice(2);
const library = require('redlock' + version);
const Redlock = library.default || library;

const servers = addresses.map((address) => {
  const [host, port] = address.split(':');
  return new Redis(Number(port), host);
});

const faults = [];
function redlock(options) {
  const r = new Redlock(servers, options);
  r.on('clientError', (err) => faults.push(String(err))); // version 4
  r.on('error', (err) => { // version 5, which also tells here that someone has the lock
    if (err.name !== 'ResourceLockedError') faults.push(String(err));
  });
  return r;
}
const once = redlock({ retryCount: 0 });

// Version 5 keeps what it got in an attempt that failed until it gives up, and then takes it for someone else's: after
// a split vote on several servers its own retries can't win before the TTL has passed. So the retries are made here,
// of attempts that clean up after themselves.
const patient = version === '4' ? redlock({ retryCount: -1, retryDelay: 20, retryJitter: 20 }) : {
  async acquire(keys, ttl) {
    for (;;) {
      try {
        return await once.acquire(keys, ttl);
      } catch (err) {
        if (err.name !== 'ExecutionError' || faults.length > 0) throw err;
      }
      await new Promise((resolve) => setTimeout(resolve, 40 * Math.random()));
    }
  },
};

const locks = new Map();
const operations = {
  async acquire({ id, key, ttl, wait }) {
    locks.set(id, await (wait ? patient : once).acquire([key], ttl));
  },
  async extend({ lock, ttl }) {
    locks.set(lock, await once.extend(locks.get(lock), ttl));
  },
  async release({ lock }) {
    await once.release(locks.get(lock));
  },
};

const lines = readline.createInterface({ input: process.stdin });
lines.on('line', async (line) => {
  const request = JSON.parse(line);
  const reply = { id: request.id };
  try {
    await operations[request.op](request);
  } catch (err) {
    Object.assign(reply, { error: err.name, message: err.message, faults });
  }
  process.stdout.write(JSON.stringify(reply) + '\n');
});
lines.on('close', () => process.exit(0));
