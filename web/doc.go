// Package web is the admin dashboard under /ui/: pages rendered on the server, with one stylesheet and no JavaScript.
// It reads reports from package store and shows them as text; whatever publishers sent is never interpreted.
// It answers only: it writes nothing, calls nobody and decides nothing about events.
package web
