// Package node wires the parts of a node, without flags and environment.
package node
