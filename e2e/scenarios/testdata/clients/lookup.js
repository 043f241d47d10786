// Prints the addresses of a name as Node.js tells them: by c-ares or by getaddrinfo.
const dns = require('dns').promises;
const [how, name] = process.argv.slice(2);

const ways = {
  cares: async () => [...await dns.resolve4(name), ...await dns.resolve6(name)],
  lookup: async () => (await dns.lookup(name, { all: true })).map((a) => a.address),
};

ways[how]().then(
  (addresses) => addresses.forEach((a) => console.log(a)),
  (e) => { console.log(e.code); process.exitCode = 1; },
);
