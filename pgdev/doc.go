// Package pgdev finds, starts and stops a private PostgreSQL: one for the dev verb, one per test process, one per bench
// run. The server belongs to the process that started it, listens on 127.0.0.1 alone behind a random password, and dies
// with its parent. It never touches a server of the user's, knows nothing of postrider's schema, and is no way to run
// PostgreSQL in production.
package pgdev
