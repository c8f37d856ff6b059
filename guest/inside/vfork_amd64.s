#include "textflag.h"

// func vfork(flags uintptr) (pid, errno uintptr)
//
// Child and parent share the stack, and the child runs first. So the return
// address, which the child's next call overwrites, waits in a register.
TEXT ·vfork(SB), NOSPLIT|NOFRAME, $0-24
	MOVQ flags+0(FP), DI
	XORL SI, SI
	XORL DX, DX
	XORL R10, R10
	XORL R8, R8
	MOVL $56, AX
	POPQ R12
	SYSCALL
	PUSHQ R12
	XORL CX, CX
	CMPQ AX, $-4095
	JCS done
	MOVQ AX, CX
	NEGQ CX
	XORL AX, AX
done:
	MOVQ AX, pid+8(FP)
	MOVQ CX, errno+16(FP)
	RET
