// Package spec declares the settings of topics, event subscriptions and retry policies: their names, limits, choices
// and descriptions. The REST API, the command line, the dashboard's forms and the reference derive from its tables.
package spec
