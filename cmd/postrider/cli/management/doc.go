// Package management is the verbs for topics, event subscriptions and retry policies, and apply, which reads all of
// them from a file. They are clients of the REST API.
package management
