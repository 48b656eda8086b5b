// Package access has the users, sessions, API keys and logins of the service, and writes the audit.
package access
