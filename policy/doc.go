// Package policy decides: values in, a verdict out. It knows what an answer means, when a delivery is tried again,
// when it ends and why, and which addresses may be called.
// It reads no clock, opens no connection, writes no log and draws no random number: time and jitter are arguments.
package policy
