// Package catalog has the configuration: topics, event subscriptions, retry policies, their secrets, holds set by
// operators and validation handshakes. Cache keeps it in memory; read Cache first.
package catalog
