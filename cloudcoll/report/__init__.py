"""What people read: text for the terminal, JSON for programs.

Functions return lines or values; nothing here prints.
"""
