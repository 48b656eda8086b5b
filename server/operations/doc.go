// Package operations handles the REST API's operations on what was published, delivered and recorded: events,
// deliveries, dead letters, problems, relay feeds, the audit and queries. Package v1 has those on the configuration.
package operations
