#include "textflag.h"

// func cloneOn(flags, stack uintptr, s *spawn) (pid, errno uintptr)
//
// The child begins at the top of another stack, in life, and never returns.
TEXT ·cloneOn(SB), NOSPLIT|NOFRAME, $0-40
	MOVQ flags+0(FP), DI
	MOVQ stack+8(FP), SI
	MOVQ s+16(FP), R12
	XORL DX, DX
	XORL R10, R10
	XORL R8, R8
	MOVL $56, AX
	SYSCALL
	TESTQ AX, AX
	JZ child
	XORL CX, CX
	CMPQ AX, $-4095
	JCS done
	MOVQ AX, CX
	NEGQ CX
	XORL AX, AX
done:
	MOVQ AX, pid+24(FP)
	MOVQ CX, errno+32(FP)
	RET
child:
	XORL BP, BP
	SUBQ $32, SP
	MOVQ R12, 0(SP)
	CALL ·life(SB)
	INT $3
	RET


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
