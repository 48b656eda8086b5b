// Package display formats what pages of the dashboard show: numbers, times, charts, JSON, and texts of publishers and
// endpoints. It also reads the filter in a page's address, and makes the links between the pages of a list.
package display
