// Requests each URL of its input with one http.Agent, which keeps connections.
const http = require('http');
const agent = new http.Agent({ keepAlive: true });

const get = (url) => new Promise((resolve) => {
  const failed = (e) => resolve(`failed ${e.code || e}`);
  http.get(url, { agent, timeout: 60000 }, (r) => {
    let body = '';
    r.on('data', (part) => { body += part; });
    r.on('end', () => resolve(`ok ${body}`));
    r.on('error', failed);
  }).on('timeout', function () { this.destroy(new Error('timeout')); }).on('error', failed);
});

(async () => {
  for await (const url of require('readline').createInterface({ input: process.stdin })) console.log(await get(url));
})();
