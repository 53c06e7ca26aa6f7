// What is particular to amd64.

package seccomp

import "golang.org/x/sys/unix"

const (
	auditArch        = unix.AUDIT_ARCH_X86_64
	sysKexecFileLoad = unix.SYS_KEXEC_FILE_LOAD
	// x32Bit is set in the numbers of the x32 ABI, which has the same audit
	// architecture and other numbers for the same calls.
	x32Bit = 0x40000000
)

func legacyModes() []legacyMode {
	return []legacyMode{
		{"chmod", unix.SYS_CHMOD, []Cond{withBits(1)}},
		{"mknod", unix.SYS_MKNOD, []Cond{withBits(1)}},
		{"creat", unix.SYS_CREAT, []Cond{withBits(1)}},
		{"open", unix.SYS_OPEN, []Cond{creating(1), withBits(2)}},
	}
}
