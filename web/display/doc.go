// Package display is how pages of the dashboard show values: numbers, times, charts, JSON and text that others wrote.
// It also reads the filters in the address of a page, and makes the links between pages of a list.
package display
