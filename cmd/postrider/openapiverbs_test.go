package main

import (
	"slices"
	"strings"
	"testing"

	"postrider/server/openapi"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// verbsOf are the verbs that do what an operation of the management API does, as its client.
var verbsOf = map[string]string{
	"listTopics": "topic list", "putTopic": "topic create", "getTopic": "topic show", "deleteTopic": "topic delete",
	"listTopicKeys": "topic keys", "regenerateTopicKey": "topic keys --renew",
	"testFilter":        "topic test-filter",
	"listSubscriptions": "subscription list", "putSubscription": "subscription create",
	"getSubscription": "subscription show", "patchSubscription": "subscription update",
	"deleteSubscription": "subscription delete", "pauseSubscription": "subscription pause",
	"resumeSubscription": "subscription resume", "releaseSubscription": "subscription release",
	"probeSubscription": "subscription probe", "revealSubscriptionEndpoint": "subscription reveal",
	"revealSubscriptionHeaders": "subscription reveal", "validateSubscription": "subscription validate",
	"testSubscriptionFilter": "subscription test-filter", "testDelivery": "subscription test-delivery",
	"getSigningSecrets":   "subscription signing-secrets",
	"rotateSigningSecret": "subscription signing-secrets --rotate", "redeliverEvents": "event redeliver",
	"listDeadLetters": "deadletter list", "exportDeadLetters": "deadletter export",
	"redeliverDeadLetters": "deadletter redeliver --all", "purgeDeadLetters": "deadletter purge --all",
	"getDeadLetter":   "deadletter show",
	"purgeDeadLetter": "deadletter purge", "redeliverDeadLetter": "deadletter redeliver",
	"listOperations": "operation list", "getOperation": "operation show", "cancelOperation": "operation cancel",
	"importDeadLetters": "deadletter import",
	"repairDeadLetters": "deadletter patch", "resolveDeadLetters": "deadletter resolve --all",
	"resolveDeadLetter": "deadletter resolve", "reopenDeadLetter": "deadletter reopen",
	"redeliverEvent": "event redeliver", "retryDeliveries": "delivery retry-now",
	"cancelDeliveries": "delivery cancel",
	"listQueries":      "query list", "putQuery": "query save", "getQuery": "query show", "deleteQuery": "query delete",
	"runQuery": "query run", "runSQL": "query run --sql",
	"listAPIKeys": "apikey list", "createAPIKey": "apikey create", "getAPIKey": "apikey show",
	"revokeAPIKey": "apikey revoke",
	"listUsers":    "user list", "putUser": "user add", "getUser": "user show", "deleteUser": "user remove",
	"listPolicies": "policy list", "getPolicy": "policy show", "putPolicy": "policy put", "deletePolicy": "policy delete",
	"eraseSubject": "event erase --subject", "listEvents": "event list", "listActivity": "tail", "getEvent": "event show",
	"eraseEvent":   "event erase",
	"listProblems": "problem list", "getProblem": "problem show", "acknowledgeProblem": "problem acknowledge",
	"resolveProblem": "problem resolve",
	"listRelayFeeds": "relay list", "getRelayFeed": "relay show", "openRelayCallback": "relay open-callback",
	"listDeliveries": "delivery list", "getDelivery": "delivery show", "listDeliveryAttempts": "delivery show",
	"cancelDelivery": "delivery cancel", "retryDelivery": "delivery retry-now",
	"deadLetterDelivery": "delivery dead-letter-now",
	"listBatches":        "batch list", "getBatch": "batch show", "listBatchMembers": "batch show",
	"listBatchAttempts": "batch show",
	"listAudit":         "audit list",
	"whoAmI":            "whoami", "applyConfiguration": "apply",
}

// Whatever the management API does, the command line does, too: by a verb that exists, with a flag that it has.
func TestEveryOperationHasAVerb(t *testing.T) {
	t.Parallel()
	var spec struct {
		Paths map[string]map[string]yaml.Node
	}
	require.NoError(t, yaml.Unmarshal(openapi.Document, &spec))
	flags := map[string][]string{}
	for _, leaf := range newParser(t).Model.Leaves(true) {
		_, verb, _ := strings.Cut(leaf.FullPath(), " ")
		flags[verb] = []string{""}
		for _, flag := range slices.Concat(leaf.AllFlags(true)...) {
			flags[verb] = append(flags[verb], flag.Name)
		}
	}
	operations := 0
	for path, members := range spec.Paths {
		for method, node := range members {
			if method == "parameters" || !strings.HasPrefix(path, "/v1/") {
				continue
			}
			var operation struct {
				ID string `yaml:"operationId"`
			}
			require.NoError(t, node.Decode(&operation))
			operations++
			says, ok := verbsOf[operation.ID]
			require.True(t, ok, "%s %s (%s) has no verb: give it one, and name it in verbsOf", method, path, operation.ID)
			verb, flag, _ := strings.Cut(says, " --")
			require.Contains(t, flags[verb], flag, "%s is said to be: %s", operation.ID, says)
		}
	}
	require.Len(t, verbsOf, operations, "verbsOf has operations that are none")
}
