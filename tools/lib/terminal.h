/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_LIB_TERMINAL_H
#define TOOLS_LIB_TERMINAL_H

/* How many characters a line of the terminal fd has: as COLUMNS says, else the terminal itself. 0: not known, or fd is none. */
unsigned int terminal_columns(int fd);

#endif
