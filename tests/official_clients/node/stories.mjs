// @azure/storage-queue: each operation, and each way to sign a request. Run by tests/official_clients/test_node.py, with the account in the
// environment: ACCOUNT, KEY, URL; PORT, the port that is meant by 10001.
import assert from "node:assert/strict";
import net from "node:net";
import { test } from "node:test";
import {
  AccountSASPermissions, generateAccountSASQueryParameters, generateQueueSASQueryParameters, QueueClient, QueueSASPermissions,
  QueueServiceClient, StorageSharedKeyCredential,
} from "@azure/storage-queue";

const { ACCOUNT, KEY, URL: ADDRESS, PORT } = process.env;
const credential = new StorageSharedKeyCredential(ACCOUNT, KEY);
const quickly = { retryOptions: { maxTries: 1 } };
const week = 604_800;
const connectionString =
  `DefaultEndpointsProtocol=http;AccountName=${ACCOUNT};AccountKey=${KEY};QueueEndpoint=${ADDRESS};`;
const service = QueueServiceClient.fromConnectionString(connectionString, quickly);
const inAnHour = () => new Date(Date.now() + 3_600_000);
let numbers = 0;

/** A new queue. */
async function newQueue(options) {
  const queue = service.getQueueClient(`node-${++numbers}`);
  await queue.create(options);
  return queue;
}

async function refused(promise, code, status) {
  await assert.rejects(promise, (error) => {
    assert.equal(error.code, code);
    if (status) assert.equal(error.statusCode, status);
    return true;
  });
}

async function collected(items) {
  const found = [];
  for await (const item of items) found.push(item);
  return found;
}

const texts = async (queue, count = 32) =>
  (await queue.peekMessages({ numberOfMessages: count })).peekedMessageItems.map((message) => message.messageText);

test("create, delete and create again", async () => {
  const queue = service.getQueueClient("node-create");
  assert.equal((await queue.createIfNotExists({ metadata: { team: "a" } })).succeeded, true);
  assert.equal((await queue.create({ metadata: { team: "a" } }))._response.status, 204);
  await refused(queue.create(), "QueueAlreadyExists", 409);
  assert.equal((await queue.createIfNotExists()).succeeded, false);
  assert.equal(await queue.exists(), true);
  await queue.delete();
  assert.equal(await queue.exists(), false);
  assert.equal((await queue.deleteIfExists()).succeeded, false);
  await refused(queue.delete(), "QueueNotFound", 404);
  assert.equal((await queue.create())._response.status, 201);
});

test("metadata", async () => {
  const queue = await newQueue({ metadata: { team: "a" } });
  assert.deepEqual((await queue.getProperties()).metadata, { team: "a" });
  await queue.setMetadata({ b_c: "d", e: "F" });
  assert.deepEqual((await queue.getProperties()).metadata, { b_c: "d", e: "F" });
  await queue.setMetadata();
  assert.deepEqual((await queue.getProperties()).metadata ?? {}, {});
});

test("lists by page with prefix and metadata", async () => {
  for (let number = 0; number < 5; number++) await service.createQueue(`list-${number}`, { metadata: { n: String(number) } });
  const pages = [];
  const options = { prefix: "list-", includeMetadata: true };
  for await (const page of service.listQueues(options).byPage({ maxPageSize: 2 })) {
    pages.push(page.queueItems.map((queue) => queue.metadata.n));
  }
  assert.deepEqual(pages, [["0", "1"], ["2", "3"], ["4"]]);
  const names = (await collected(service.listQueues({ prefix: "list-" }))).map((queue) => queue.name);
  assert.deepEqual(names, [0, 1, 2, 3, 4].map((number) => `list-${number}`));
});

test("service properties", async () => {
  const rule = {
    allowedOrigins: "http://a.example", allowedMethods: "GET", allowedHeaders: "x-ms-*", exposedHeaders: "*", maxAgeInSeconds: 5,
  };
  const metrics = { version: "1.0", enabled: true, includeAPIs: true, retentionPolicy: { enabled: true, days: 5 } };
  const retentionPolicy = { enabled: false };
  const queueAnalyticsLogging = { version: "1.0", deleteProperty: true, read: false, write: true, retentionPolicy };
  await service.setProperties({ cors: [rule], hourMetrics: metrics, minuteMetrics: metrics, queueAnalyticsLogging });
  const read = await service.getProperties();
  assert.deepEqual(read.cors, [rule]);
  assert.equal(read.hourMetrics.retentionPolicy.days, 5);
  assert.equal(read.queueAnalyticsLogging.deleteProperty, true);
  await service.setProperties({ cors: [] });
  const after = await service.getProperties();
  assert.equal(after.hourMetrics.enabled, true);
  assert.ok(!after.cors?.length);
  await refused(service.setProperties({ cors: Array(6).fill(rule) }), "InvalidXmlDocument", 400);
});

test("stats of the secondary endpoint", async () => {
  const secondary = new QueueServiceClient(ADDRESS.replace(ACCOUNT, `${ACCOUNT}-secondary`), credential, quickly);
  const stats = await secondary.getStatistics();
  // Version 12.32.0 looks for another root element than the documented one, and so finds nothing in it.
  assert.match(stats._response.bodyAsText, /<StorageServiceStats><GeoReplication><Status>live<\/Status>/);
  await refused(service.getStatistics(), "InvalidQueryParameterValue", 400);
});

test("access policies", async () => {
  const queue = await newQueue();
  const startsOn = new Date("2026-11-21T02:55:46Z"), expiresOn = inAnHour();
  await queue.setAccessPolicy([{ id: "p", accessPolicy: { permissions: "raup", startsOn, expiresOn } }]);
  const { signedIdentifiers } = await queue.getAccessPolicy();
  assert.deepEqual(signedIdentifiers, [{ id: "p", accessPolicy: { permissions: "raup", startsOn, expiresOn } }]);
  const six = [0, 1, 2, 3, 4, 5].map((id) => ({ id: String(id), accessPolicy: { permissions: "r", startsOn, expiresOn } }));
  await refused(queue.setAccessPolicy(six), "InvalidXmlDocument", 400);
  await queue.setAccessPolicy([]);
  assert.deepEqual((await queue.getAccessPolicy()).signedIdentifiers, []);
});

test("a message from send to delete", async () => {
  const queue = await newQueue();
  const text = "h\u00e9 <&> \n \u{1f600}";
  const sent = await queue.sendMessage(text, { messageTimeToLive: 60, visibilityTimeout: 0 });
  assert.equal(sent.expiresOn - sent.insertedOn, 60_000);
  assert.deepEqual(await texts(queue), [text]);
  const [got] = (await queue.receiveMessages({ numberOfMessages: 32, visibilityTimeout: week })).receivedMessageItems;
  assert.deepEqual([got.messageId, got.dequeueCount, got.messageText], [sent.messageId, 1, text]);
  assert.deepEqual((await queue.receiveMessages()).receivedMessageItems, []);
  await refused(queue.deleteMessage(got.messageId, sent.popReceipt), "PopReceiptMismatch", 400);
  const kept = await queue.updateMessage(got.messageId, got.popReceipt, undefined, 0);
  assert.deepEqual(await texts(queue), [text]);
  const changed = await queue.updateMessage(got.messageId, kept.popReceipt, "new", 0);
  assert.deepEqual(await texts(queue), ["new"]);
  await queue.deleteMessage(got.messageId, changed.popReceipt);
  await refused(queue.deleteMessage(got.messageId, changed.popReceipt), "MessageNotFound", 404);
  const forever = await queue.sendMessage("x", { messageTimeToLive: -1, visibilityTimeout: week });
  assert.equal(forever.expiresOn.getUTCFullYear(), 9999);
});

test("many messages, count and clear", async () => {
  const queue = await newQueue();
  for (let number = 0; number < 40; number++) await queue.sendMessage(String(number));
  assert.equal((await queue.getProperties()).approximateMessagesCount, 40);
  const sizes = [];
  for (let page = 0; page < 2; page++) {
    sizes.push((await queue.receiveMessages({ numberOfMessages: 32 })).receivedMessageItems.length);
  }
  assert.deepEqual(sizes, [32, 8]);
  await queue.clearMessages();
  assert.equal((await queue.getProperties()).approximateMessagesCount, 0);
});

test("what is refused", async () => {
  const queue = await newQueue();
  await refused(queue.sendMessage("x".repeat(65_537)), "RequestBodyTooLarge", 413);
  await refused(queue.sendMessage("x", { visibilityTimeout: week + 1 }), "OutOfRangeQueryParameterValue", 400);
  await refused(queue.sendMessage("x", { visibilityTimeout: 5, messageTimeToLive: 5 }), "InvalidQueryParameterValue", 400);
  await refused(queue.receiveMessages({ numberOfMessages: 33 }), "OutOfRangeQueryParameterValue", 400);
  await refused(queue.peekMessages({ numberOfMessages: 0 }), "OutOfRangeQueryParameterValue", 400);
  await refused(service.createQueue("ab"), "OutOfRangeInput", 400);
  await refused(service.createQueue("a--b"), "InvalidResourceName", 400);
  await refused(service.getQueueClient("none").sendMessage("x"), "QueueNotFound", 404);
});

test("an account SAS", async () => {
  const queue = await newQueue();
  const token = (permissions, resourceTypes, more = {}) => generateAccountSASQueryParameters({
    expiresOn: inAnHour(), permissions: AccountSASPermissions.parse(permissions), resourceTypes, services: "q", ...more,
  }, credential).toString();
  const by = (...given) => new QueueServiceClient(`${ADDRESS}?${token(...given)}`, undefined, quickly);
  assert.ok((await collected(by("l", "s").listQueues())).length > 0);
  await refused(collected(by("l", "co").listQueues()), "AuthorizationResourceTypeMismatch", 403);
  await refused(by("l", "s").getProperties(), "AuthorizationPermissionMismatch", 403);
  await by("a", "o").getQueueClient(queue.name).sendMessage("x");
  await refused(by("a", "o").getQueueClient(queue.name).peekMessages(), "AuthorizationPermissionMismatch", 403);
  await refused(by("rwdlacup", "sco").getQueueClient(queue.name).getAccessPolicy(), "AuthorizationPermissionMismatch", 403);
  await refused(by("l", "s", { expiresOn: new Date(0) }).getProperties(), "AuthenticationFailed", 403);
  await refused(by("r", "s", { protocol: "https" }).getProperties(), "AuthorizationProtocolMismatch", 403);
  await refused(by("r", "s", { ipRange: { start: "10.0.0.1" } }).getProperties(), "AuthorizationSourceIPMismatch", 403);
  const text = `QueueEndpoint=${ADDRESS};SharedAccessSignature=${token("l", "s")}`;
  assert.ok((await collected(QueueServiceClient.fromConnectionString(text, quickly).listQueues())).length > 0);
});

test("a service SAS, and one by policy", async () => {
  const queue = await newQueue();
  const by = (given, name = queue.name) => new QueueClient(
    `${ADDRESS}/${name}?${generateQueueSASQueryParameters({ queueName: queue.name, ...given }, credential)}`, undefined, quickly);
  const permissions = (letters) => ({ permissions: QueueSASPermissions.parse(letters), expiresOn: inAnHour() });
  await by(permissions("a")).sendMessage("x");
  assert.deepEqual(await texts(by(permissions("r"))), ["x"]);
  const [got] = (await by(permissions("p")).receiveMessages()).receivedMessageItems;
  const updated = await by(permissions("u")).updateMessage(got.messageId, got.popReceipt, "y", 0);
  await by(permissions("p")).deleteMessage(got.messageId, updated.popReceipt);
  await refused(by(permissions("raup")).clearMessages(), "AuthorizationPermissionMismatch", 403);
  await refused(by(permissions("raup"), "list-0").peekMessages(), "AuthenticationFailed", 403);
  const accessPolicy = { permissions: "ra", startsOn: new Date("2026-11-21"), expiresOn: inAnHour() };
  await queue.setAccessPolicy([{ id: "p", accessPolicy }]);
  await by({ identifier: "p" }).sendMessage("z");
  assert.deepEqual(await texts(by({ identifier: "p" })), ["z"]);
  await refused(by({ identifier: "p" }).receiveMessages(), "AuthorizationPermissionMismatch", 403);
  await queue.setAccessPolicy([]);
  await refused(by({ identifier: "p" }).sendMessage("z"), "AuthenticationFailed", 403);
});

test("a wrong key", async () => {
  const wrong = new StorageSharedKeyCredential(ACCOUNT, Buffer.alloc(64).toString("base64"));
  await refused(new QueueServiceClient(ADDRESS, wrong, quickly).getProperties(), "AuthenticationFailed", 403);
});

test("development storage", async () => {
  const connect = net.Socket.prototype.connect;
  net.Socket.prototype.connect = function (...given) {  // what is for port 10001 goes to the listener's
    const options = Array.isArray(given[0]) ? given[0][0] : given[0];
    if (Number(options.port) === 10_001) options.port = PORT;
    return connect.apply(this, given);
  };
  const queue = QueueServiceClient.fromConnectionString("UseDevelopmentStorage=true", quickly).getQueueClient("node");
  assert.equal(queue.url, "http://127.0.0.1:10001/devstoreaccount1/node");
  await queue.create();
  await queue.sendMessage("x");
  assert.deepEqual(await texts(queue), ["x"]);
});
