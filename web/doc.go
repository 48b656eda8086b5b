// Package web is the admin dashboard under /ui/: pages rendered on the server, complete without JavaScript, refreshed
// with it. It reads through package query and shows what publishers sent and endpoints answered as text; none of it is
// ever interpreted. It answers only: it calls nobody and decides nothing about events. What it changes it asks the
// store for, as the REST API does.
package web
