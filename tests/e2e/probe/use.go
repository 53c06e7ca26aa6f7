// Using up what a run may have.

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

func use(what string, args []string) {
	amount := func() int {
		n, err := strconv.Atoi(args[0])
		if err != nil {
			fmt.Println(what, err)
			os.Exit(2)
		}
		return n
	}
	switch what {
	case "alloc": // MiB, each page of it written
		b := make([]byte, amount()<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		fmt.Println("alloc", len(b)>>20)
	case "fork": // processes that stay
		made, err := fork(amount())
		fmt.Println("fork", made, err)
	case "spin": // two threads for so many seconds; tells the processor time of both
		spin(time.Duration(amount()) * time.Second)
	case "fill": // a file in each directory, until there is no more room
		for _, dir := range args {
			n, err := fill(dir)
			fmt.Println("fill", dir, n, errors.Is(err, syscall.ENOSPC))
		}
	}
}

// fork makes processes that do nothing but wait for a signal.
func fork(n int) (made int, err error) {
	for ; made < n; made++ {
		pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
		switch {
		case errno != 0:
			return made, errno
		case pid == 0:
			for { // a child of a Go program can do no more than this
				syscall.RawSyscall6(syscall.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
			}
		}
	}
	return made, nil
}

func spin(long time.Duration) {
	const threads = 2
	runtime.GOMAXPROCS(threads + 1)
	start := time.Now()
	done := make(chan bool)
	for range threads {
		go func() {
			for time.Since(start) < long { //nolint:revive // it only takes time
			}
			done <- true
		}()
	}
	for range threads {
		<-done
	}
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		fmt.Println("spin", err)
		return
	}
	used := time.Duration(u.Utime.Nano() + u.Stime.Nano())
	fmt.Printf("spin %.2f\n", used.Seconds()/time.Since(start).Seconds())
}

func fill(dir string) (int64, error) {
	f, err := os.Create(filepath.Join(dir, "fill"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	block := make([]byte, 1<<20)
	for n := int64(0); ; {
		wrote, err := f.Write(block)
		n += int64(wrote)
		if err != nil {
			return n, err
		}
		if n > 1<<30 { // there is no limit
			return n, nil
		}
	}
}
