// Package v1 handles the REST API's operations under /v1 on the configuration: topics, event subscriptions with their
// holds, retry policies, users and API keys. The generated code in package api reads their parameters and writes their
// responses.
package v1
