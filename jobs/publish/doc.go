// Package publish accepts events. Publisher.Publish is T1: one group-committed transaction stores the events, their
// deliveries and a job for each attempt. Large publishes and publishes by SQL become routes.
package publish
