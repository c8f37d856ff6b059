//go:build !race

#include "textflag.h"

// func cloneBirth(trap, a0, a1 uintptr, b *birth) (pid, errno uintptr)
//
// The child begins at the top of another stack, in live, and never returns.
TEXT ·cloneBirth(SB), NOSPLIT|NOFRAME, $0-48
	MOVQ trap+0(FP), AX
	MOVQ a0+8(FP), DI
	MOVQ a1+16(FP), SI
	MOVQ b+24(FP), R12
	XORL DX, DX
	XORL R10, R10
	XORL R8, R8
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
	MOVQ AX, pid+32(FP)
	MOVQ CX, errno+40(FP)
	RET
child:
	XORL BP, BP
	SUBQ $32, SP
	MOVQ R12, 0(SP)
	CALL ·live(SB)
	INT $3
	RET
