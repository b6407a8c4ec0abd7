// @azure/service-bus: its administration client. Run by tests/official_clients/test_node.py, with a namespace in the environment:
// NAME, POLICY, KEY, HOST, which is that of a port with TLS whose certificate NODE_EXTRA_CA_CERTS names.
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { test } from "node:test";
import { ServiceBusAdministrationClient } from "@azure/service-bus";

const { NAME, POLICY, KEY, HOST } = process.env;
const quickly = { retryOptions: { maxRetries: 0 } };
const connect = (key = KEY, policy = POLICY) => new ServiceBusAdministrationClient(
  `Endpoint=sb://${HOST};SharedAccessKeyName=${policy};SharedAccessKey=${key}`, quickly);
const client = connect();
const forever = "P10675199DT2H48M5.4775807S";
const text = " h\u00e9 <&> \u{1f600} x";

const queue = {
  autoDeleteOnIdle: "PT5M", deadLetteringOnMessageExpiration: true, defaultMessageTimeToLive: "P3DT1.5S",
  duplicateDetectionHistoryTimeWindow: "PT20S", enableBatchedOperations: false, enableExpress: true, enablePartitioning: true,
  forwardDeadLetteredMessagesTo: "dead/target", forwardTo: "target", lockDuration: "PT5S", maxDeliveryCount: 3,
  maxMessageSizeInKilobytes: 2048, maxSizeInMegabytes: 2048, requiresDuplicateDetection: true, requiresSession: true,
  status: "Disabled", userMetadata: text, availabilityStatus: "Available",
};
const topic = {
  autoDeleteOnIdle: "PT5M", defaultMessageTimeToLive: "P3DT1.5S", duplicateDetectionHistoryTimeWindow: "P7D",
  enableBatchedOperations: false, enableExpress: true, enablePartitioning: true, maxMessageSizeInKilobytes: 2048,
  maxSizeInMegabytes: 2048, requiresDuplicateDetection: true, status: "SendDisabled", supportOrdering: true, userMetadata: text,
  availabilityStatus: "Available",
};
const subscription = {
  autoDeleteOnIdle: "P1D", deadLetteringOnFilterEvaluationExceptions: false, deadLetteringOnMessageExpiration: true,
  defaultMessageTimeToLive: "PT1S", enableBatchedOperations: false, forwardDeadLetteredMessagesTo: "dead/target",
  forwardTo: "target", lockDuration: "PT5M", maxDeliveryCount: 2000, requiresSession: true, status: "ReceiveDisabled",
  userMetadata: text, availabilityStatus: "Available",
};
const changed = {
  autoDeleteOnIdle: "P9D", deadLetteringOnFilterEvaluationExceptions: true, deadLetteringOnMessageExpiration: false,
  defaultMessageTimeToLive: "PT1.5S", duplicateDetectionHistoryTimeWindow: "PT3M", enableBatchedOperations: true,
  forwardDeadLetteredMessagesTo: "target", forwardTo: "dead/target", lockDuration: "PT1M1S", maxDeliveryCount: 1,
  maxMessageSizeInKilobytes: 102_400, maxSizeInMegabytes: 5120, status: "Active", supportOrdering: false, userMetadata: "changed",
  availabilityStatus: "Limited",
};
const fixed = ["enableExpress", "enablePartitioning", "requiresDuplicateDetection", "requiresSession"];

async function refused(promise, code, status, says = /./) {
  await assert.rejects(promise, (error) => {
    assert.deepEqual([error.code, error.statusCode], [code, status], error.message);
    assert.match(error.message, says);
    return true;
  });
}

async function collected(items) {
  const found = [];
  for await (const item of items) found.push(item);
  return found;
}

/** The properties of these names; of forwards the path. */
function given(properties, names) {
  const found = {};
  for (const name of Object.keys(names)) {
    const value = properties[name];
    found[name] = name.startsWith("forward") && value ? value.replace(`sb://${HOST}/`, "") : value;
  }
  return found;
}

/** A send by the REST API. Resolves to its status. */
async function send(path, headers = {}, policy = POLICY, key = KEY) {
  const resource = encodeURIComponent(`https://${HOST}/${path}`), expires = Math.floor(Date.now() / 1000) + 600;
  const signature = encodeURIComponent(createHmac("sha256", key).update(`${resource}\n${expires}`).digest("base64"));
  const authorization = `SharedAccessSignature sr=${resource}&sig=${signature}&se=${expires}&skn=${policy}`;
  const sent = await fetch(`https://${HOST}/${path}/messages`, { method: "POST", body: "x", headers: { authorization, ...headers } });
  return sent.status;
}

/** Every property survives create, get, update, get. */
async function everyProperty(own, calls) {
  for (const path of ["target", "dead/target"]) await client.createQueue(path);
  assert.deepEqual(given(await calls.create(own), own), own);
  const read = await calls.get();
  assert.deepEqual(given(read, own), own);
  assert.deepEqual(given(await calls.update(read), own), own);
  assert.deepEqual((await collected(calls.list())).filter((each) => calls.is(each)).map((each) => given(each, own)), [own]);
  const expected = { ...own };
  for (const [name, value] of Object.entries(changed).filter(([name]) => name in own)) {
    const before = await calls.get();
    await calls.update(Object.assign(before, { [name]: value }));
    expected[name] = value;
    assert.deepEqual(given(await calls.get(), own), expected, name);
  }
  for (const name of fixed.filter((name) => name in own)) {
    await refused(calls.update({ ...(await calls.get()), [name]: false }), "ServiceError", 400, new RegExp(name, "i"));
  }
  await refused(calls.create(own), "MessageEntityAlreadyExistsError", 409);
  assert.equal(await calls.exists(), true);
  await calls.delete();
  assert.equal(await calls.exists(), false);
  await refused(calls.get(), "MessageEntityNotFoundError", 404);
  await refused(calls.delete(), "MessageEntityNotFoundError", 404);
  await refused(calls.update(read), "MessageEntityNotFoundError", 404);
}

test("every property of a queue", () => everyProperty(queue, {
  create: (options) => client.createQueue("a/orders", options),
  get: () => client.getQueue("a/orders"),
  update: (properties) => client.updateQueue(properties),
  delete: () => client.deleteQueue("a/orders"),
  exists: () => client.queueExists("a/orders"),
  list: () => client.listQueues(),
  is: (each) => each.name === "a/orders",
}));

test("every property of a topic", () => everyProperty(topic, {
  create: (options) => client.createTopic("a/prices", options),
  get: () => client.getTopic("a/prices"),
  update: (properties) => client.updateTopic(properties),
  delete: () => client.deleteTopic("a/prices"),
  exists: () => client.topicExists("a/prices"),
  list: () => client.listTopics(),
  is: (each) => each.name === "a/prices",
}));

test("every property of a subscription", async () => {
  await client.createTopic("a/prices");
  await everyProperty(subscription, {
    create: (options) => client.createSubscription("a/prices", "all", options),
    get: () => client.getSubscription("a/prices", "all"),
    update: (properties) => client.updateSubscription(properties),
    delete: () => client.deleteSubscription("a/prices", "all"),
    exists: () => client.subscriptionExists("a/prices", "all"),
    list: () => client.listSubscriptions("a/prices"),
    is: (each) => each.topicName === "a/prices" && each.subscriptionName === "all",
  });
});

test("defaults and durations without end", async () => {
  const created = await client.createQueue("orders");
  assert.deepEqual([created.lockDuration, created.maxDeliveryCount, created.status], ["PT1M", 10, "Active"]);
  assert.deepEqual([created.defaultMessageTimeToLive, created.autoDeleteOnIdle], [forever, forever]);
  assert.deepEqual([created.forwardTo, created.userMetadata, created.authorizationRules], [undefined, undefined, undefined]);
  await client.updateQueue({ ...created, defaultMessageTimeToLive: "PT1H" });
  const read = await client.getQueue("orders");
  assert.deepEqual([read.defaultMessageTimeToLive, read.autoDeleteOnIdle], ["PT1H", forever]);
  await client.updateQueue({ ...read, defaultMessageTimeToLive: forever });
  assert.equal((await client.getQueue("orders")).defaultMessageTimeToLive, forever);
});

test("lists by page", async () => {
  const paths = ["a/b/c", "A-Z", "tilde~d", "dot.ted", ...Array.from({ length: 103 }, (_, number) => `queue-${1000 + number}`)];
  const inOrder = [...paths].sort((one, other) => (one.toLowerCase() < other.toLowerCase() ? -1 : 1));
  for (const path of paths) await client.createQueue(path);
  assert.deepEqual((await collected(client.listQueues())).map((each) => each.name), inOrder);
  assert.deepEqual((await collected(client.listQueuesRuntimeProperties())).map((each) => each.name), inOrder);
  const sizes = (await collected(client.listQueues().byPage({ maxPageSize: 50 }))).map((page) => page.length);
  assert.deepEqual(sizes, [50, 50, 7]);
  await client.createTopic("a/prices");
  const names = ["Capital", "dot.ted", "tilde~d", ...Array.from({ length: 100 }, (_, number) => `s-${1000 + number}`)];
  for (const name of names) await client.createSubscription("a/prices", name);
  const listed = (await collected(client.listSubscriptions("a/prices"))).map((each) => each.subscriptionName);
  assert.deepEqual(listed, [...names].sort());
  for (const name of names.slice(3)) await client.createRule("a/prices", "Capital", name, { sqlExpression: "price < 5" });
  const rules = (await collected(client.listRules("a/prices", "Capital"))).map((each) => each.name);
  assert.deepEqual(rules, ["$Default", ...names.slice(3)]);
  assert.deepEqual((await collected(client.listTopics())).map((each) => each.name), ["a/prices"]);
  assert.deepEqual(await collected(client.listRules("a/prices", "dot.ted").byPage({ maxPageSize: 1 })).then((all) => all.length), 1);
});

test("runtime properties", async () => {
  await client.createQueue("orders");
  assert.equal((await client.getQueueRuntimeProperties("orders")).accessedAt.getUTCFullYear(), 1);
  const later = JSON.stringify({ ScheduledEnqueueTimeUtc: new Date(Date.now() + 3_600_000).toUTCString() });
  assert.deepEqual([await send("orders"), await send("orders"), await send("orders", { BrokerProperties: later })], [201, 201, 201]);
  const orders = await client.getQueueRuntimeProperties("orders");
  assert.deepEqual([orders.activeMessageCount, orders.scheduledMessageCount, orders.totalMessageCount], [2, 1, 3]);
  assert.deepEqual([orders.deadLetterMessageCount, orders.transferMessageCount, orders.transferDeadLetterMessageCount], [0, 0, 0]);
  assert.ok(orders.sizeInBytes > 0 && Date.now() - orders.accessedAt < 60_000 && orders.createdAt <= orders.modifiedAt);
  await client.createTopic("prices");
  for (const name of ["all", "other"]) await client.createSubscription("prices", name);
  assert.equal(await send("prices"), 201);
  const prices = await client.getTopicRuntimeProperties("prices");
  assert.deepEqual([prices.subscriptionCount, prices.scheduledMessageCount], [2, 0]);
  const all = await client.getSubscriptionRuntimeProperties("prices", "all");
  assert.deepEqual([all.topicName, all.activeMessageCount, all.totalMessageCount], ["prices", 1, 1]);
  const listed = await collected(client.listSubscriptionsRuntimeProperties("prices"));
  assert.deepEqual(listed.map((each) => [each.subscriptionName, each.totalMessageCount]), [["all", 1], ["other", 1]]);
  assert.deepEqual((await collected(client.listTopicsRuntimeProperties())).map((each) => each.subscriptionCount), [2]);
});

test("rules with typed parameters", async () => {
  await client.createTopic("prices");
  await client.createSubscription("prices", "all");
  assert.deepEqual((await client.getRule("prices", "all", "$Default")).filter.sqlExpression, "1=1");
  const values = { text: "h\u00e9 <&>", int: 5, double: 0.1, yes: true, no: false, instant: new Date("2026-11-30T06:07:08.123Z") };
  const sqlParameters = Object.fromEntries(Object.entries(values).map(([name, value]) => [`@${name}`, value]));
  const filter = { sqlExpression: "price < @int AND sys.Label = @text", sqlParameters };
  const action = { sqlExpression: "SET price = @double; REMOVE old", sqlParameters };
  const created = await client.createRule("prices", "all", "sql", filter, action);
  const read = await client.getRule("prices", "all", "sql");
  for (const rule of [created, read]) assert.deepEqual([rule.filter, rule.action], [filter, action]);
  const correlation = {
    correlationId: "c", subject: "l <&>", to: "t", replyTo: "r", replyToSessionId: "rs", sessionId: "s", messageId: "m",
    contentType: "text/plain", applicationProperties: values,
  };
  await client.createRule("prices", "all", "correlation", correlation);
  assert.deepEqual((await client.getRule("prices", "all", "correlation")).filter, correlation);
  const rule = await client.getRule("prices", "all", "correlation");
  await client.updateRule("prices", "all", { ...rule, filter: { subject: "fruit" }, action: { sqlExpression: "SET a = 1" } });
  const updated = await client.getRule("prices", "all", "correlation");
  assert.deepEqual([updated.filter.subject, updated.filter.to, updated.action.sqlExpression], ["fruit", undefined, "SET a = 1"]);
  assert.deepEqual((await collected(client.listRules("prices", "all"))).map((each) => each.name), ["$Default", "correlation", "sql"]);
  assert.equal(await client.ruleExists("prices", "all", "sql"), true);
  await client.deleteRule("prices", "all", "sql");
  assert.equal(await client.ruleExists("prices", "all", "sql"), false);
  await refused(client.createRule("prices", "all", "bad", { sqlExpression: "price < AND" }), "ServiceError", 400, /column/);
  await refused(client.createRule("prices", "all", "CORRELATION", { subject: "x" }), "MessageEntityAlreadyExistsError", 409);
  await refused(client.deleteRule("prices", "all", "none"), "MessageEntityNotFoundError", 404);
});

test("a subscription with a rule of its own", async () => {
  await client.createTopic("prices");
  const defaultRuleOptions = { name: "cheap", filter: { sqlExpression: "price < 5" }, action: { sqlExpression: "SET a = 1" } };
  await client.createSubscription("prices", "cheap", { defaultRuleOptions });
  const rules = await collected(client.listRules("prices", "cheap"));
  assert.deepEqual(rules.map((rule) => [rule.name, rule.filter.sqlExpression, rule.action.sqlExpression]),
    [["cheap", "price < 5", "SET a = 1"]]);
  assert.deepEqual([await send("prices", { price: "3" }), await send("prices", { price: "7" })], [201, 201]);
  assert.equal((await client.getSubscriptionRuntimeProperties("prices", "cheap")).totalMessageCount, 1);
});

test("authorization rules", async () => {
  const own = (keyName, accessRights) => ({
    claimType: "SharedAccessKey", accessRights, keyName, primaryKey: `${keyName}-primary-${NAME}`,
    secondaryKey: `${keyName}-secondary-${NAME}`,
  });
  const authorizationRules = [own("owner", ["Manage", "Send", "Listen"]), own("sender", ["Send"])];
  await client.createQueue("orders", { authorizationRules });
  const read = await client.getQueue("orders");
  const sorted = (rules) => rules.map((rule) => ({ ...rule, accessRights: [...rule.accessRights].sort() }));
  assert.deepEqual(sorted(read.authorizationRules), sorted(authorizationRules));
  assert.equal(await send("orders", {}, "sender", `sender-primary-${NAME}`), 201);
  assert.equal(await send("orders", {}, "sender", `owner-primary-${NAME}`), 401);
  const owner = connect(`owner-primary-${NAME}`, "owner");
  assert.equal((await owner.getQueue("orders")).name, "orders");
  await refused(owner.createQueue("other"), "UnauthorizedRequestError", 401);
  await refused(collected(connect(`sender-primary-${NAME}`, "sender").listQueues()), "UnauthorizedRequestError", 401);
  await client.updateQueue({ ...read, authorizationRules: read.authorizationRules.slice(1) });
  assert.deepEqual((await client.getQueue("orders")).authorizationRules.map((rule) => rule.keyName), ["sender"]);
});

test("forwarding", async () => {
  await client.createQueue("tar/get");
  await client.createQueue("orders", { forwardTo: "tar/get", forwardDeadLetteredMessagesTo: `sb://${HOST}/tar/get` });
  const read = await client.getQueue("orders");
  assert.deepEqual([read.forwardTo, read.forwardDeadLetteredMessagesTo], [`sb://${HOST}/tar/get`, `sb://${HOST}/tar/get`]);
  assert.equal((await client.updateQueue({ ...read, forwardTo: undefined })).forwardTo, undefined);
  await client.updateQueue({ ...read, forwardTo: "orders" });
  await refused(client.createQueue("other", { forwardTo: "none" }), "ServiceError", 400, /none/);
});

test("names", async () => {
  for (const name of ["a/b/c", "tilde~d", "dot.ted", "Capitals", "under_scored-dashed"]) {
    assert.equal((await client.createTopic(name)).name, name);
    assert.equal((await client.getTopic(name.toUpperCase())).name, name);
    await client.createSubscription(name, "Sub~s.x");
    const found = await client.getSubscription(name, "Sub~s.x");
    assert.deepEqual([found.topicName, found.subscriptionName], [name, "Sub~s.x"]);
  }
  for (const name of ["100%25", "$Second", "a.b~c"]) {
    await client.createRule("a/b/c", "Sub~s.x", name, { sqlExpression: "price < 5" });
    assert.equal(await client.ruleExists("a/b/c", "Sub~s.x", name), true);
  }
  const spaced = await client.createRule("a/b/c", "Sub~s.x", "a b", { sqlExpression: "price < 5" });
  assert.equal(spaced.name, "a%20b", "the client takes names from URLs");
  for (const name of ["a//b", "x".repeat(261), "h\u00e9"]) await refused(client.createQueue(name), "ServiceError", 400);
});

test("what is refused", async () => {
  await client.createQueue("orders");
  await client.createTopic("prices");
  await refused(client.createTopic("orders"), "MessageEntityAlreadyExistsError", 409);
  await refused(client.createSubscription("none", "all"), "MessageEntityNotFoundError", 404);
  await refused(client.getSubscription("prices", "none"), "MessageEntityNotFoundError", 404);
  await refused(client.createQueue("other", { lockDuration: "PT4S" }), "ServiceError", 400, /LockDuration/);
  await refused(client.createQueue("other", { lockDuration: "P1000000000D" }), "ServiceError", 400, /LockDuration/);
  await refused(client.createQueue("other", { defaultMessageTimeToLive: "soon" }), "ServiceError", 400, /DefaultMessageTimeToLive/);
  await refused(client.createQueue("other", { maxDeliveryCount: 0 }), "ServiceError", 400, /MaxDeliveryCount/);
  await refused(connect("A".repeat(43)).getQueue("orders"), "UnauthorizedRequestError", 401, /SubCode=40103/);
  const thirteen = Array.from({ length: 13 }, (_, number) => ({ keyName: `p${number}`, accessRights: ["Send"] }));
  await refused(client.createQueue("other", { authorizationRules: thirteen }), "QuotaExceededError", 403);
  assert.equal(await client.queueExists("other"), false);
});

test("the namespace", async () => {
  const found = await client.getNamespaceProperties();
  assert.deepEqual([found.name, found.messagingSku, found.messagingUnits], [NAME, "Premium", 1]);
  assert.ok(found.createdAt <= found.modifiedAt);
});
