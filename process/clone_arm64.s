//go:build !race

#include "textflag.h"

// func cloneBirth(trap, a0, a1 uintptr, b *birth) (pid, errno uintptr)
//
// The child begins at the top of another stack, in live, and never returns.
TEXT ·cloneBirth(SB), NOSPLIT|NOFRAME, $0-48
	MOVD trap+0(FP), R8
	MOVD a0+8(FP), R0
	MOVD a1+16(FP), R1
	MOVD b+24(FP), R19
	MOVD ZR, R2
	MOVD ZR, R3
	MOVD ZR, R4
	SVC
	CBZ R0, child
	MOVD ZR, R1
	CMN $4095, R0
	BCC done
	NEG R0, R1
	MOVD ZR, R0
done:
	MOVD R0, pid+32(FP)
	MOVD R1, errno+40(FP)
	RET
child:
	MOVD ZR, R29
	SUB $32, RSP
	MOVD R19, 8(RSP)
	CALL ·live(SB)
	BRK
	RET
