// The table as a classic BPF program.

package seccomp

import (
	"encoding/binary"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data. Both architectures are little endian, so the
// low half of an argument comes first.
const (
	offNr   = 0
	offArch = 4
	offArgs = 16
)

const (
	retKill  = unix.SECCOMP_RET_KILL_PROCESS
	retAllow = unix.SECCOMP_RET_ALLOW
)

func retErrno(e unix.Errno) bpf.Instruction {
	return bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(e)}
}

// Instructions returns the program for a table. A call of a foreign ABI kills
// the process: its numbers mean other calls.
func Instructions(table []Row) []bpf.Instruction {
	prog := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1},
		bpf.RetConstant{Val: retKill},
		bpf.LoadAbsolute{Off: offNr, Size: 4},
	}
	if x32Bit != 0 {
		prog = append(prog,
			bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: x32Bit, SkipTrue: 1},
			retErrno(unix.EPERM))
	}
	for _, r := range table {
		body := conditions(r)
		// The accumulator holds the number again when a row did not apply.
		prog = append(prog, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: r.Nr, SkipTrue: uint8(len(body))})
		prog = append(prog, body...)
	}
	return append(prog, bpf.RetConstant{Val: retAllow})
}

// conditions returns what follows when the number is r's: it ends in a return
// or behind its last instruction, with the number in the accumulator.
func conditions(r Row) []bpf.Instruction {
	if len(r.When) == 0 {
		return []bpf.Instruction{retErrno(r.Errno)}
	}
	// Backwards, as every condition that does not hold skips to the end.
	body := []bpf.Instruction{retErrno(r.Errno), bpf.LoadAbsolute{Off: offNr, Size: 4}}
	for i := len(r.When) - 1; i >= 0; i-- {
		c := r.When[i]
		miss := uint8(len(body) - 1) // to the reload of the number
		var test []bpf.Instruction
		for j, v := range c.Values {
			left := uint8(len(c.Values) - 1 - j)
			switch c.Op {
			case Is: // a hit goes on to the next condition, the last miss to the end
				t := bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipTrue: left}
				if left == 0 {
					t.SkipFalse = miss
				}
				test = append(test, t)
			case IsNot:
				test = append(test, bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipTrue: left + miss})
			case AnyBit:
				test = append(test, bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: v, SkipFalse: miss})
			}
		}
		load := []bpf.Instruction{bpf.LoadAbsolute{Off: offArgs + 8*uint32(c.Arg), Size: 4}}
		if c.Mask != 0 {
			load = append(load, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: c.Mask})
		}
		body = append(append(load, test...), body...)
	}
	return body
}

// Program returns the filter, assembled.
func Program() ([]unix.SockFilter, error) {
	raw, err := bpf.Assemble(Instructions(Table()))
	if err != nil {
		return nil, err
	}
	prog := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		prog[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return prog, nil
}

// Bytes is a program as the kernel and bwrap's --seccomp read it.
func Bytes(prog []unix.SockFilter) []byte {
	var b []byte
	for _, f := range prog {
		b = binary.NativeEndian.AppendUint16(b, f.Code)
		b = append(b, f.Jt, f.Jf)
		b = binary.NativeEndian.AppendUint32(b, f.K)
	}
	return b
}
