// The program aisb-entrypoint is PID 1 of both containers: see package
// entrypoint.
package main

import (
	"os"
	"time"

	"ai-sandbox/entrypoint"
)

var began = time.Now()

func main() {
	os.Exit(entrypoint.Main(began, os.Args[1:]))
}
