// Clients that share a semaphore of npm redis-semaphore, each with a connection of its own. A
// client takes a permit, holds it for a while and releases it, again and again. For each line of
// input it prints a tally; "most" is the greatest number of permits in use since the last tally.
// The end of the input ends the program.
//
//	node semaphore.js host:port key permits clients hold ttl        (both times in ms)
//	out  tally {"grants": [3, 4, …], "sent": 120, "most": 10}
'use strict';

const readline = require('readline');
const Redis = require('ioredis');
const { Semaphore } = require('redis-semaphore');

const [address, key, permits, clients, hold, ttl] = process.argv.slice(2);
const [host, port] = address.split(':');
const grants = new Array(Number(clients)).fill(0);
let sent = 0;
let inside = 0;
let most = 0;

function connect() {
  const client = new Redis(Number(port), host);
  const send = client.sendCommand;
  client.sendCommand = function (...args) {
    sent++;
    return send.apply(this, args);
  };
  return client;
}

async function work(i) {
  const semaphore = new Semaphore(connect(), key, Number(permits), {
    lockTimeout: Number(ttl),
    acquireTimeout: Infinity,
  });
  for (;;) {
    await semaphore.acquire();
    most = Math.max(most, ++inside);
    grants[i]++;
    if (hold > 0) {
      await new Promise((done) => setTimeout(done, hold * (1 + Math.random() / 4)));
    }
    inside--;
    await semaphore.release();
  }
}

for (let i = 0; i < grants.length; i++) {
  work(i).catch((err) => {
    console.error(String(err));
    process.exit(1);
  });
}

const lines = readline.createInterface({ input: process.stdin });
lines.on('line', () => {
  console.log('tally ' + JSON.stringify({ grants, sent, most }));
  most = inside;
});
lines.on('close', () => process.exit(0));
