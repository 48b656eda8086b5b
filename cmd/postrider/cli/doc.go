// Package cli is the verbs that are clients of the REST API, one file per noun. Package management has those that
// change topics, event subscriptions and retry policies.
package cli
